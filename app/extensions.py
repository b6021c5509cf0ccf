"""What every request can reach: settings, database, artifact store and brakes of an app."""

from __future__ import annotations

from dataclasses import dataclass

from flask import current_app

from app.config import Config
from app.db import Database
from app.services.rate_limits import RateLimiter
from app.storage import Storage
from app.throttle import LoginThrottle

KEY = "adloom"


@dataclass(frozen=True, kw_only=True)
class Extensions:
    config: Config
    database: Database
    storage: Storage
    login_throttle: LoginThrottle
    rate_limiter: RateLimiter


def extensions() -> Extensions:
    """The extensions of the app that answers this request."""
    bound: Extensions = current_app.extensions[KEY]
    return bound
