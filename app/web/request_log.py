"""One log line per request, and the request id that ties every line of a request together."""

from __future__ import annotations

import logging
import re
import time
from http import HTTPStatus
from uuid import uuid4

from flask import Flask, Response, g, has_request_context, request

HEADER = "X-Request-ID"
LOG = logging.getLogger("app.request")
# An id from a proxy is kept if it can do no harm in a log line.
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
# Fetched by pages and monitors, not by people: one page asks for dozens.
_QUIET = frozenset({"static", "health.live", "health.ready", "media.show", "share_links.media"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestIdFilter(logging.Filter):
    """Gives every record a `request_id`: a dash outside requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = g.get("request_id", "-") if has_request_context() else "-"
        return True


def configure_logging(level: str) -> None:
    """Send the app's log to standard error, once per process."""
    logger = logging.getLogger("app")
    logger.setLevel(level)
    if not any(isinstance(item, RequestIdFilter) for h in logger.handlers for item in h.filters):
        handler = logging.StreamHandler()
        handler.addFilter(RequestIdFilter())
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s [%(request_id)s] %(name)s: %(message)s")
        )
        logger.addHandler(handler)


def _begin() -> None:
    given = request.headers.get(HEADER, "")
    g.request_id = given if _SAFE_ID.fullmatch(given) else uuid4().hex
    g.started_s = time.perf_counter()


def _end(response: Response) -> Response:
    response.headers[HEADER] = g.request_id
    milliseconds = 1000 * (time.perf_counter() - g.started_s)
    level = logging.DEBUG if _is_quiet(response) else logging.INFO
    # A token in an address opens what it is for: it stays out of the log.
    is_secret = "token" in (request.view_args or {})
    path = str(request.url_rule) if is_secret else request.path
    LOG.log(level, "%s %s %d %.0f ms", request.method, path, response.status_code, milliseconds)
    return response


def _is_quiet(response: Response) -> bool:
    """Whether the line would drown what matters: files, and what pages ask for by themselves."""
    if request.method not in _READS or response.status_code >= HTTPStatus.BAD_REQUEST:
        return False
    is_unchanged = response.status_code == HTTPStatus.NOT_MODIFIED
    return is_unchanged or request.endpoint in _QUIET or "HX-Request" in request.headers


def register(app: Flask, *, level: str) -> None:
    configure_logging(level)
    app.before_request(_begin)
    app.after_request(_end)
