"""The error tree of the application: each error carries its HTTP status and a stable code.

AppError
├── InvalidInput            400  something a person can correct; names the field
│   └── LimitExceeded       422  a workspace limit, with the limit and the way out
├── Unauthenticated         401
├── Forbidden               403
├── NotFound                404
├── Conflict                409  the object is in another state than the action needs
├── TooManyRequests         429  wait; the answer says how long
├── ConfigurationError      500  a setting is missing or wrong; names the variable
├── StorageError            503
│   └── StorageFull         507
└── ServiceUnavailable      503  Postgres or Redis cannot be reached
"""

from __future__ import annotations


class AppError(Exception):
    """Something went wrong that the caller can be told about in one sentence."""

    status = 500
    code = "internal"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidInput(AppError):
    """The input cannot be used as it is."""

    status = 400
    code = "invalid_input"


class LimitExceeded(InvalidInput):
    """The request is larger than the workspace allows."""

    status = 422
    code = "limit_exceeded"


class Unauthenticated(AppError):
    """Nobody is signed in, or the credentials are wrong."""

    status = 401
    code = "unauthenticated"


class Forbidden(AppError):
    """The role does not allow the action."""

    status = 403
    code = "forbidden"


class NotFound(AppError):
    """There is no such object in this workspace."""

    status = 404
    code = "not_found"


class Conflict(AppError):
    """The object is not in a state in which this can be done."""

    status = 409
    code = "conflict"


class TooManyRequests(AppError):
    """As many requests were made as may be made in this time."""

    status = 429
    code = "rate_limited"


class ConfigurationError(AppError):
    """A setting is missing or cannot be used."""

    code = "configuration"


class StorageError(AppError):
    """The artifact store cannot be reached or answered with an error."""

    status = 503
    code = "storage_unavailable"


class StorageFull(StorageError):
    """The artifact store has no space left."""

    status = 507
    code = "storage_full"


class ServiceUnavailable(AppError):
    """A service that Adloom needs cannot be reached."""

    status = 503
    code = "service_unavailable"
