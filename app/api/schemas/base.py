"""What all models of the API have in common: strictness, ids, pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from app.api.cursors import write_cursor
from app.api.routes import DEFAULT_LIMIT, MAX_LIMIT, Call

Row = TypeVar("Row")
Item = TypeVar("Item", bound=BaseModel)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


# Postgres keeps no NUL in text.
Text = Annotated[str, AfterValidator(_without_nul)]
Time = AwareDatetime
Id = UUID


class Input(BaseModel):
    """What a caller sends; an unknown field is an error, not a silent loss."""

    model_config = ConfigDict(extra="forbid")


class Output(BaseModel):
    """What a caller gets; fields may be added to it, so read what you know."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class PageQuery(Input):
    """Where a page of a list starts and how long it is."""

    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    cursor: Text | None = Field(
        default=None, max_length=500, description="`next_cursor` of the page before."
    )


class Page(Output, Generic[Item]):
    """One page of a list; without `next_cursor` it is the last."""

    data: list[Item]
    next_cursor: str | None


def paged(
    call: Call[Any, Any],
    rows: Sequence[Row],
    to_item: Callable[[Row], Item],
    key_of: Callable[[Row], object],
) -> tuple[list[Item], str | None]:
    """`data` and `next_cursor` of rows that were asked for with one more than the limit."""
    limit = call.query.limit
    shown = rows[:limit]
    cursor = write_cursor(call.actor, key_of(shown[-1])) if len(rows) > limit else None
    return [to_item(row) for row in shown], cursor
