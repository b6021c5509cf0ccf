"""Errors of the API as problem documents (RFC 9457): a stable code, a sentence, the request id."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from flask import Response, g, request
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import HTTPException

from app.errors import AppError, InvalidInput

LOG = logging.getLogger("app.problems")

PREFIX: Final = "/v1"
MEDIA_TYPE: Final = "application/problem+json"
# Codes of what the framework itself refuses.
HTTP_CODES: Final = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}
UNAVAILABLE: Final = "The database does not answer. Nothing is lost: try again shortly."
BROKEN: Final = "Something broke on our side. Try again, and tell us the request_id if it persists."


class ValidationFailed(InvalidInput):
    """The request does not fit its schema; `errors` names every place."""

    status = 422
    code = "validation_failed"

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = errors[0]
        super().__init__(f"{first['field']}: {first['message']}{more}", field=first["field"])
        self.errors = errors


def is_api_request() -> bool:
    return request.path == PREFIX or request.path.startswith(f"{PREFIX}/")


def problem_or(show_page: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An error handler that answers requests to the API with a problem, others with the page."""

    def show(error: Exception) -> Any:
        return problem_of(error) if is_api_request() else show_page(error)

    return show


def problem_of(error: Exception) -> Response:
    """The answer to a request to the API that ended with this error."""
    if isinstance(error, AppError):
        if error.status >= 500:
            LOG.error("%s: %s", error.code, error.message)
        extra: dict[str, Any] = {"field": error.field} if error.field else {}
        if errors := _details(error):
            extra["errors"] = errors
        return _problem(error.status, error.code, error.message, **extra)
    if isinstance(error, HTTPException):
        status = error.code or 500
        response = _problem(status, HTTP_CODES.get(status, "http_error"), error.description or "")
        for name, value in error.get_headers():
            if name.lower() == "allow":
                response.headers[name] = value
        return response
    if isinstance(error, OperationalError):
        LOG.error("database: %s", error)
        return _problem(503, "service_unavailable", UNAVAILABLE)
    LOG.exception("unexpected error", exc_info=error)
    return _problem(500, "internal", BROKEN)


def _problem(status: int, code: str, detail: str, **extra: Any) -> Response:
    document = {
        "type": f"{PREFIX}/docs#error-{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": g.get("request_id"),
        **extra,
    }
    response = Response(json.dumps(document), status=status, mimetype=MEDIA_TYPE)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="adloom"'
    return response


def _details(error: AppError) -> list[dict[str, Any]]:
    """Every fault, where an error knows of several: of a schema, a prompt, or a table."""
    if isinstance(error, ValidationFailed):
        return error.errors
    findings = getattr(error, "findings", ())
    names = ("code", "row", "line", "column", "placeholder", "written", "field", "term", "reason")
    return [
        {
            "message": item.message,
            **{name: value for name in names if (value := getattr(item, name, None)) is not None},
        }
        for item in findings
    ]
