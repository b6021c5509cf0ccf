"""The OpenAPI 3.1 document of /v1, made from the declared routes and their pydantic models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from app.api.frame import IDEMPOTENCY_HEADER, JSON, REPLAYED_HEADER
from app.api.routes import Declared, Empty, Route, RouteKind
from app.api.uploads import FILE
from app.problems import MEDIA_TYPE, PREFIX
from app.services.idempotency import MAX_KEY_LENGTH

VERSION: Final = "1.0.0"
REF: Final = "#/components/schemas/{model}"
ABOUT: Final = (
    "Render ad creative in bulk. Prices are in millionths of the workspace's currency. "
    "Every POST takes an Idempotency-Key: sent again within 24 hours, it has no second effect."
)
_VARIABLE: Final = re.compile(r"<(?:(\w+):)?(\w+)>")
# Besides the errors that every request may meet.
COMMON_ERRORS: Final = (400, 401, 403, 429, 500, 503)


class ErrorDetail(BaseModel):
    """One of several faults."""

    model_config = ConfigDict(extra="allow")

    message: str
    field: str | None = None
    code: str | None = None


class Problem(BaseModel):
    """What went wrong (RFC 9457). Act on `code`, which stays; show `detail` to people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str | None
    field: str | None = None
    errors: list[ErrorDetail] | None = None


def build_document(declared: Sequence[Declared], *, server_url: str) -> dict[str, Any]:
    """The whole document as JSON types."""
    paths: dict[str, dict[str, Any]] = {}
    for item in declared:
        path = _VARIABLE.sub(r"{\2}", item.route.path)
        paths.setdefault(path, {})[item.route.method.lower()] = _operation(item)
    tags = list(dict.fromkeys(item.route.tag for item in declared))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Adloom", "version": VERSION, "description": ABOUT},
        "servers": [{"url": f"{server_url}{PREFIX}"}],
        "security": [{"key": []}],
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key, adl_…"}
            },
            "schemas": _schemas(declared),
        },
    }


def _operation(item: Declared) -> dict[str, Any]:
    route = item.route
    operation: dict[str, Any] = {
        "operationId": item.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "description": f"Needs the scope `{route.action.value}`.",
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_headers(route)],
        "responses": _responses(route),
    }
    if route.is_upload:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {FILE: {"type": "string", "format": "binary"}},
            "required": [FILE],
        }
        content = {"multipart/form-data": {"schema": schema}}
        operation["requestBody"] = {"required": True, "content": content}
    elif route.body is not Empty:
        content = {JSON: {"schema": _ref(route.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameters(route: Route[Any, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "format": "uuid"},
        }
        for _, name in _VARIABLE.findall(route.path)
    ]


def _query_parameters(route: Route[Any, Any]) -> list[dict[str, Any]]:
    schema = route.query.model_json_schema(ref_template=REF)
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _given(value)}
        for name, value in schema.get("properties", {}).items()
    ]


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Without null: a query parameter is given or left out."""
    options = [item for item in schema.get("anyOf", ()) if item != {"type": "null"}]
    if not options:
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**rest, **options[0]}


def _headers(route: Route[Any, Any]) -> list[dict[str, Any]]:
    if route.method == "GET":
        schema = {"type": "string"}
        return [{"name": "If-None-Match", "in": "header", "required": False, "schema": schema}]
    if not route.is_repeatable():
        return []
    pattern = f"^[ -~]{{1,{MAX_KEY_LENGTH}}}$"
    schema = {"type": "string", "pattern": pattern}
    return [{"name": IDEMPOTENCY_HEADER, "in": "header", "required": False, "schema": schema}]


def _responses(route: Route[Any, Any]) -> dict[str, Any]:
    done: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if route.answer is not None:
        done["content"] = {JSON: {"schema": _ref(route.answer)}}
    string = {"schema": {"type": "string"}}
    done["headers"] = {"RateLimit": string, "RateLimit-Policy": string}
    responses = {str(route.status): done}
    if route.method == "GET":
        done["headers"]["ETag"] = string
        responses["304"] = {"description": "You have the newest version."}
    if route.is_repeatable():
        done["headers"][REPLAYED_HEADER] = string
    for status in _error_statuses(route):
        content = {MEDIA_TYPE: {"schema": _ref(Problem)}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return responses


def _error_statuses(route: Route[Any, Any]) -> list[int]:
    statuses = {*COMMON_ERRORS}
    if route.kind is not RouteKind.COLLECTION:
        statuses |= {404}
    if route.method != "GET":
        statuses |= {409, 413, 415, 507}
    return sorted({*statuses, 422})


def _schemas(declared: Iterable[Declared]) -> dict[str, Any]:
    bodies: dict[type[BaseModel], None] = {}
    answers: dict[type[BaseModel], None] = {Problem: None}
    for item in declared:
        # Queries too: the enums that they refer to stand among the schemas.
        bodies |= {item.route.body: None, item.route.query: None}
        if item.route.answer is not None:
            answers[item.route.answer] = None
    wanted = [
        *((model, "validation") for model in bodies if model is not Empty),
        *((model, "serialization") for model in answers),
    ]
    _, document = models_json_schema(wanted, ref_template=REF)  # type: ignore[arg-type]
    schemas: dict[str, Any] = document["$defs"]
    queries = {item.route.query.__name__ for item in declared}
    return {name: schema for name, schema in sorted(schemas.items()) if name not in queries}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF.format(model=model.__name__)}
