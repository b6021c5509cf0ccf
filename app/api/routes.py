"""Declared routes: what each takes, needs and answers; requests and the OpenAPI page follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from app.access import Action, Actor


class Empty(BaseModel):
    """Nothing is read: of a request without a body, or without query parameters."""

    model_config = ConfigDict(extra="forbid")


class RouteKind(StrEnum):
    """What a route must refuse; a test asks every route for it."""

    PUBLIC = "public"  # needs no key
    COLLECTION = "collection"  # shows rows of the key's own workspace alone
    OBJECT = "object"  # 404 for an object of another workspace
    CREATE = "create"  # makes something in the key's own workspace


Body = TypeVar("Body", bound=BaseModel)
Query = TypeVar("Query", bound=BaseModel)
P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class Call(Generic[Body, Query]):
    """One request: who asks for what, in a transaction of their workspace."""

    session: Session
    actor: Actor
    body: Body
    query: Query


# The answer as it is now, by its id, and whether it is final.
Refresh = Callable[[Session, Actor, UUID], tuple[BaseModel, bool]]


@dataclass(frozen=True, kw_only=True)
class Route(Generic[Body, Query]):
    """A declared route; `path` in Flask's notation, below /v1.

    With `is_upload` the body is a multipart form whose part `file` the handler reads itself.
    With `refresh`, the query's `wait` seconds may pass until it says that the answer is final.
    """

    method: str
    path: str
    kind: RouteKind
    action: Action
    tag: str
    summary: str
    answer: type[BaseModel] | None
    body: type[Body] = field(default=Empty)  # type: ignore[assignment]
    query: type[Query] = field(default=Empty)  # type: ignore[assignment]
    status: int = 200
    is_upload: bool = False
    refresh: Refresh | None = None

    def is_repeatable(self) -> bool:
        """Whether it takes an Idempotency-Key."""
        return self.method == "POST"


Handler = Callable[Concatenate[Call[Body, Query], P], BaseModel | None]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A route with what answers it, under the name of its operation."""

    route: Route[Any, Any]
    handler: Callable[..., BaseModel | None]
    operation_id: str


class Routes:
    """The routes of one resource."""

    def __init__(self) -> None:
        self.declared: list[Declared] = []

    def add(
        self, route: Route[Body, Query]
    ) -> Callable[[Handler[Body, Query, P]], Handler[Body, Query, P]]:
        """Declare that the decorated function answers `route`; its name is the operation's."""

        def declare(handler: Handler[Body, Query, P]) -> Handler[Body, Query, P]:
            name = handler.__name__
            self.declared.append(Declared(route=route, handler=handler, operation_id=name))
            return handler

        return declare


# Most rows of a page, and those of one that does not say.
MAX_LIMIT: Final = 100
DEFAULT_LIMIT: Final = 25
