"""The frame of every API request: key, rate limit, schema, one transaction, idempotency, ETag."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from flask import Response, g, request
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import UnsupportedMediaType

from app.access import Actor, require
from app.api.routes import Call, Declared, Empty, Route
from app.api.waiting import wait_for
from app.auth import actor_of_key
from app.errors import TooManyRequests
from app.extensions import extensions
from app.problems import ValidationFailed
from app.services import idempotency
from app.services.idempotency import Answer
from app.services.rate_limits import WINDOW_S, Allowance

IDEMPOTENCY_HEADER: Final = "Idempotency-Key"
REPLAYED_HEADER: Final = "Idempotency-Replayed"
JSON: Final = "application/json"
# JSON bodies; files have a limit of their own.
MAX_BODY_BYTES: Final = 4 * 2**20


def make_view(declared: Declared) -> Callable[..., Response]:
    """The view function of a declared route.

    The transaction commits before the answer leaves, and only if the handler raises nothing.
    """
    route = declared.route

    def view(**path: Any) -> Response:
        actor = current_actor()
        # Whoever may not do it learns nothing about the request or the object.
        require(actor, route.action)
        query = _read_query(route)
        body = _read_body(route)
        with extensions().database.workspace_scope(actor) as session:
            call = Call(session=session, actor=actor, body=body, query=query)
            answer, is_replayed = _answer(declared, call, path)
        if route.refresh is not None:
            answer = wait_for(route.refresh, actor, answer, wait_s=getattr(query, "wait", 0))
        response = _respond(route, answer)
        if is_replayed:
            response.headers[REPLAYED_HEADER] = "true"
        return response

    return view


def current_actor() -> Actor:
    """Who the key belongs to; counts the request, and refuses it beyond the key's limit."""
    with extensions().database.system_scope() as session:
        actor = actor_of_key(session, request.headers.get("Authorization", ""))
    allowance = g.allowance = extensions().rate_limiter.count(str(actor.api_key_id))
    if allowance.is_exceeded:
        raise TooManyRequests(
            f"This key may make {allowance.limit} requests in {WINDOW_S} seconds. "
            f"Try again in {allowance.reset_s} seconds."
        )
    return actor


def add_headers(response: Response) -> Response:
    """After every request of the API: how much of the limit is left."""
    allowance: Allowance | None = g.get("allowance")
    if allowance is not None:
        policy = f'"default";q={allowance.limit};w={WINDOW_S}'
        response.headers["RateLimit-Policy"] = policy
        left = f'"default";r={allowance.remaining};t={allowance.reset_s}'
        response.headers["RateLimit"] = left
        if response.status_code == TooManyRequests.status:
            response.headers["Retry-After"] = str(allowance.reset_s)
    return response


def _answer(declared: Declared, call: Call[Any, Any], path: dict[str, Any]) -> tuple[Answer, bool]:
    """The answer, and whether it was given before."""
    key = request.headers.get(IDEMPOTENCY_HEADER) if declared.route.is_repeatable() else None
    if key is None:
        return _run(declared, call, path), False
    asked = idempotency.fingerprint(request.method, request.path, _body_text(call.body))
    kept = idempotency.find_answer(call.session, call.actor, key, asked=asked)
    if kept is not None:
        return kept, True
    answer = _run(declared, call, path)
    idempotency.keep_answer(call.session, call.actor, key, asked=asked, answer=answer)
    return answer, False


def _run(declared: Declared, call: Call[Any, Any], path: dict[str, Any]) -> Answer:
    made = declared.handler(call, **path)
    # What the database says of the rows must be said before the answer is made.
    call.session.flush()
    return Answer(status=declared.route.status, body=made.model_dump_json() if made else "")


def _body_text(body: BaseModel) -> str:
    if not request.files:
        return body.model_dump_json()
    parts = []
    for name, file in sorted(request.files.items()):
        digest = hashlib.file_digest(file.stream, "sha256").hexdigest()  # type: ignore[arg-type]
        file.stream.seek(0)
        parts.append(f"{name}:{file.filename}:{digest}")
    return "\n".join(parts)


def _respond(route: Route[Any, Any], answer: Answer) -> Response:
    response = Response(answer.body, status=answer.status, mimetype=JSON)
    if not answer.body:
        del response.headers["Content-Type"]
    if request.method != "GET":
        response.headers["Cache-Control"] = "no-store"
        return response
    response.set_etag(hashlib.sha256(answer.body.encode()).hexdigest()[:32])
    return response.make_conditional(request)  # type: ignore[return-value]


def _read_query(route: Route[Any, Any]) -> BaseModel:
    query: BaseModel = _validate(route.query, request.args.to_dict(), where="query")
    return query


def _read_body(route: Route[Any, Any]) -> BaseModel:
    if route.is_upload or (route.body is Empty and not request.data):
        return Empty()
    request.max_content_length = MAX_BODY_BYTES
    if request.mimetype != JSON:
        raise UnsupportedMediaType(f"Send the body as {JSON}.")
    try:
        body: BaseModel = route.body.model_validate_json(request.get_data())
    except ValidationError as error:
        raise ValidationFailed(_errors(error, where="body")) from None
    return body


def _validate(model: type[BaseModel], data: dict[str, Any], *, where: str) -> BaseModel:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ValidationFailed(_errors(error, where=where)) from None


def _errors(error: ValidationError, *, where: str) -> list[dict[str, Any]]:
    return [
        {
            "field": ".".join(map(str, item["loc"])) or where,
            "message": item["msg"],
            "code": item["type"],
        }
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
