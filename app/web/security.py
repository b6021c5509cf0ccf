"""What browsers are told to refuse: the content policy and the headers beside it."""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import Flask, Response

from app.config import Config

# Media of an S3 store are fetched from the address that a redirect names.
AWS_ORIGIN = "https://*.amazonaws.com"


def media_origin(config: Config) -> str | None:
    """Where redirected media come from, or None when the app serves them itself."""
    if not config.storage_url.startswith("s3://"):
        return None
    if not config.s3_endpoint_url:
        return AWS_ORIGIN
    parts = urlsplit(config.s3_endpoint_url)
    return f"{parts.scheme}://{parts.netloc}"


def content_policy(config: Config) -> str:
    """A policy without inline scripts or styles and without foreign hosts but the media store."""
    media = " ".join(filter(None, ("'self'", media_origin(config))))
    directives = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "font-src": "'self'",
        "connect-src": "'self'",
        "img-src": media,
        "media-src": media,
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in directives.items())


def register(app: Flask, config: Config) -> None:
    headers = {
        "Content-Security-Policy": content_policy(config),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    }
    if config.secure_cookies:
        headers["Strict-Transport-Security"] = "max-age=31536000"

    @app.after_request
    def add_headers(response: Response) -> Response:
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        # Pages show one workspace's data: no shared cache may keep them.
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response
