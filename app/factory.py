"""Builds the web application: settings, extensions, blueprints, and nothing that needs torch."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlsplit

from flask import Flask
from flask_wtf import CSRFProtect

from app.api import health, v1
from app.config import Config
from app.db import Database
from app.extensions import KEY, Extensions
from app.paths import STATIC, TEMPLATES
from app.services.rate_limits import RateLimiter
from app.storage import storage_from_url
from app.throttle import LoginThrottle
from app.web import (
    api_keys,
    assets,
    batches,
    blocked_terms,
    campaigns,
    errors,
    exports,
    formatting,
    login,
    media,
    missing_files,
    places,
    previews,
    promotions,
    quality,
    request_log,
    reviewing,
    row_use,
    schedules,
    security,
    share_links,
    spend_caps,
    uploads,
    variants,
    webhooks,
)

MAX_UPLOAD_BYTES = 32 * 1024 * 1024
# Without files: the largest form is a campaign with thousands of typed values.
MAX_FORM_BYTES = 2 * 1024 * 1024
MAX_FORM_PARTS = 2_000
SESSION_DAYS = 14
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
ANY_HOST = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to


def create_app(config: Config | None = None) -> Flask:
    """The application; without `config`, its settings come from the environment."""
    config = config or Config.from_environment()
    app = Flask(__name__, template_folder=str(TEMPLATES), static_folder=str(STATIC))
    app.config.update(flask_settings(config))
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True}
    app.extensions[KEY] = Extensions(
        config=config,
        database=Database(config),
        storage=storage_from_url(config),
        login_throttle=LoginThrottle(),
        rate_limiter=RateLimiter(config.redis_url, limit=config.api_requests_per_minute),
    )
    request_log.register(app, level=config.log_level)
    security.register(app, config)
    assets.register(app)
    formatting.register(app)
    errors.register(app)
    csrf = CSRFProtect(app)
    for module in (
        *(health, login, campaigns, previews, places, uploads, batches, row_use, variants, media),
        exports,
        missing_files,
        share_links,
        spend_caps,
        reviewing,
        promotions,
        quality,
        webhooks,
        api_keys,
        blocked_terms,
        schedules,
    ):
        app.register_blueprint(module.blueprint)
    app.register_blueprint(v1.make_blueprint(csrf))
    return app


def flask_settings(config: Config) -> dict[str, object]:
    """Flask's own settings: limits on what a request may carry, and the session cookie."""
    return {
        "SECRET_KEY": config.secret_key,
        "MAX_CONTENT_LENGTH": MAX_UPLOAD_BYTES,
        "MAX_FORM_MEMORY_SIZE": MAX_FORM_BYTES,
        "MAX_FORM_PARTS": MAX_FORM_PARTS,
        "TRUSTED_HOSTS": trusted_hosts(config),
        "SESSION_COOKIE_NAME": "adloom_session",
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "SESSION_COOKIE_SECURE": config.secure_cookies,
        "PERMANENT_SESSION_LIFETIME": timedelta(days=SESSION_DAYS),
        # A page may stay open as long as its session lives.
        "WTF_CSRF_TIME_LIMIT": None,
        "WTF_CSRF_SSL_STRICT": config.secure_cookies,
    }


def trusted_hosts(config: Config) -> list[str] | None:
    """Names under which the app may be asked for; None, any, when it has no address of its own.

    A page elsewhere whose name is pointed at this machine gets no answer (DNS rebinding).
    """
    host = urlsplit(config.base_url).hostname or ""
    if host in ANY_HOST:
        return None
    return [*LOOPBACK_HOSTS, host]
