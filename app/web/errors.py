"""Error pages, or problems for the API: what went wrong, in a sentence, and the way on."""

from __future__ import annotations

import logging
from http import HTTPStatus

from flask import Flask, Response, g
from flask_wtf.csrf import CSRFError
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import HTTPException, SecurityError

from app.errors import AppError
from app.problems import problem_or
from app.web.scope import is_htmx, page

LOG = logging.getLogger("app.errors")

TITLES = {
    400: "That did not work",
    401: "Please sign in",
    403: "You may look, but not do this",
    404: "There is nothing here",
    405: "That does not work from here",
    409: "That is no longer possible",
    413: "That file is too large",
    422: "That is more than this workspace allows",
    429: "Too many tries",
    500: "Something broke on our side",
    503: "Back in a moment",
    507: "The store is full",
}
MESSAGES = {
    404: "The page was moved or removed, or it belongs to another workspace.",
    405: "Go back and use the buttons on the page.",
    413: "Uploads may have up to 32 MB. Split the file in two, or drop columns you don’t need.",
    500: "Nothing you entered was saved half. Try again; if it happens again, tell whoever runs "
    "Adloom here and give them the reference below.",
    503: "The database or the artifact store does not answer. Nothing is lost: try again shortly.",
}


def error_response(status: int, message: str) -> Response:
    """A whole page, or for htmx a notice that the page shows at its top."""
    title = TITLES.get(status) or HTTPStatus(status).phrase
    context = {
        "status_code": status,
        "title": title,
        "message": message,
        "request_id": g.get("request_id"),
    }
    if not is_htmx():
        return page("errors/error.html", status=status, **context)
    response = page("partials/notice.html", status=status, **context)
    response.headers["HX-Retarget"] = "#notices"
    response.headers["HX-Reswap"] = "innerHTML"
    return response


def _app_error(error: AppError) -> Response:
    if error.status >= 500:
        LOG.error("%s: %s", error.code, error.message)
    return error_response(error.status, error.message)


def _csrf_error(error: CSRFError) -> Response:
    LOG.info("request refused: %s", error.description)
    return error_response(
        400, "This page was open too long, or you signed in elsewhere. Reload it and try again."
    )


def _http_error(error: HTTPException) -> HTTPException | Response:
    status = error.code or 500
    # Redirects are answers, not errors; for a host that is not ours no page can be addressed.
    if status < 400 or isinstance(error, SecurityError):
        return error
    return error_response(status, MESSAGES.get(status) or error.description or "")


def _database_error(error: OperationalError) -> Response:
    LOG.error("database: %s", error)
    return error_response(503, MESSAGES[503])


def _unexpected(error: Exception) -> Response:
    LOG.exception("unexpected error", exc_info=error)
    return error_response(500, MESSAGES[500])


def register(app: Flask) -> None:
    app.register_error_handler(AppError, problem_or(_app_error))
    app.register_error_handler(CSRFError, _csrf_error)
    app.register_error_handler(HTTPException, problem_or(_http_error))
    app.register_error_handler(OperationalError, problem_or(_database_error))
    app.register_error_handler(Exception, problem_or(_unexpected))
