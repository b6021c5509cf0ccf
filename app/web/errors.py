"""Error pages, or problems for the API: what went wrong, in a sentence, and the way on."""

from __future__ import annotations

import logging
from http import HTTPStatus
from urllib.parse import urlsplit

from flask import Flask, Response, current_app, flash, g, make_response, redirect, request
from flask_wtf.csrf import CSRFError
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import HTTPException, SecurityError

from app.errors import AppError
from app.problems import problem_or
from app.web.scope import is_htmx, page

LOG = logging.getLogger("app.errors")

# Refusals that a person can do something about, on the page where they were.
SHOWN_WHERE_ASKED = frozenset({400, 409, 422})
# It travels in the session's cookie, which browsers limit to 4 kB.
MAX_FLASHED = 1_000

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
    is_short = len(error.message) <= MAX_FLASHED
    if error.status in SHOWN_WHERE_ASKED and is_short and (back := _page_of_form()):
        flash(error.message, "error")
        return make_response(redirect(back, 303))
    return error_response(error.status, error.message)


def _page_of_form() -> str | None:
    """The page that a form was sent from, where its refusal is best told; None if unknown."""
    if request.method != "POST" or is_htmx() or not request.referrer:
        return None
    parts = urlsplit(request.referrer)
    if f"{parts.scheme}://{parts.netloc}/" != request.host_url or not _is_page(parts.path):
        return None
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _page_above() -> str | None:
    """Of an address that forms alone are sent to, the page that it belongs to."""
    path = request.path
    while path := path.rpartition("/")[0]:
        if _is_page(path):
            return path
    return None


def _is_page(path: str) -> bool:
    adapter = current_app.url_map.bind("")
    try:
        adapter.match(path, method="GET")
    except HTTPException:
        return False
    return True


def _csrf_error(error: CSRFError) -> Response:
    LOG.info("request refused: %s", error.description)
    return error_response(
        400, "This page was open too long, or you signed in elsewhere. Reload it and try again."
    )


def _http_error(error: HTTPException) -> HTTPException | Response:
    status = error.code or 500
    if status == 405 and request.method == "GET" and (page_above := _page_above()):
        return make_response(redirect(page_above))
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
