"""Addresses of static files that change with their content, so browsers may keep them for good."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from flask import Flask, Response, request, url_for

from app.paths import STATIC

A_YEAR_S = 365 * 24 * 3600


@lru_cache(maxsize=128)
def _fingerprint(filename: str, mtime_ns: int) -> str:
    del mtime_ns  # part of the cache's key: an edited file gets a new address
    return hashlib.sha256((STATIC / filename).read_bytes()).hexdigest()[:10]


def asset(filename: str) -> str:
    """The address of a file below app/static."""
    version = _fingerprint(filename, (STATIC / filename).stat().st_mtime_ns)
    return url_for("static", filename=filename, v=version)


def _cache_versioned(response: Response) -> Response:
    if request.endpoint == "static" and request.args.get("v") and response.status_code == 200:
        response.headers["Cache-Control"] = f"public, max-age={A_YEAR_S}, immutable"
    return response


def register(app: Flask) -> None:
    app.add_template_global(asset)
    app.after_request(_cache_versioned)
