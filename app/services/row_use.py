"""Which rows of a table a quoted batch need not render: rendered before, or like an earlier row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.db import config_of
from app.models import Batch, ExpansionMode, Upload
from app.services.expanding import open_source
from app.services.reuse import find_known
from app.services.scoping import get_in_workspace
from app.services.specs import BatchSpec
from app.services.upload_rows import read_rows
from app.services.variants import row_of
from app.storage import storage_from_url


@dataclass(frozen=True, kw_only=True)
class SpareRow:
    """A row by its number in the table that asks for nothing new.

    `like` is the earlier row that it repeats, None for one that was rendered before.
    """

    number: int
    like: int | None

    @property
    def why(self) -> str:
        return "rendered before" if self.like is None else f"same as row {self.like}"


def list_spare_rows(session: Session, actor: Actor, batch_id: UUID) -> list[SpareRow]:
    """The rows, in order, of which every variant is there already or stands in an earlier row.

    Empty for a batch without a table, and for a sample, whose variants belong to no row alone.
    """
    require(actor, Action.VIEW)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    spec = BatchSpec.model_validate(batch.spec)
    if batch.upload_id is None or spec.mode is ExpansionMode.SAMPLED:
        return []
    upload = session.get_one(Upload, batch.upload_id)
    numbers = [row.number for row in read_rows(storage_from_url(config_of(session)), upload)]
    keys = list(_row_keys(session, batch, spec))
    known = set() if spec.force_render else find_known(session, actor, (key for _, key in keys))
    return _find_spare(keys, known, numbers)


def _row_keys(session: Session, batch: Batch, spec: BatchSpec) -> Iterator[tuple[int, str]]:
    """The row, counted from 0, and the key of each variant."""
    source = open_source(
        session, spec, prompt_template_id=batch.prompt_template_id, upload_id=batch.upload_id
    )
    for draft in source.drafts():
        yield row_of(spec, draft.ordinal), draft.variant_key


def _find_spare(keys: list[tuple[int, str]], known: set[str], numbers: list[int]) -> list[SpareRow]:
    first: dict[str, int] = {}
    for row, key in keys:
        first[key] = min(row, first.get(key, row))
    # By row: whether all is known so far, and the earlier row that all is like so far.
    is_known: dict[int, bool] = {}
    is_repeat: dict[int, bool] = {}
    for row, key in keys:
        is_known[row] = is_known.get(row, True) and key in known
        is_repeat[row] = is_repeat.get(row, True) and first[key] < row
    like: Mapping[int, int] = {row: first[key] for row, key in reversed(keys)}
    return [
        SpareRow(number=numbers[row], like=None if is_known[row] else numbers[like[row]])
        for row in sorted(is_known)
        if is_known[row] or is_repeat[row]
    ]
