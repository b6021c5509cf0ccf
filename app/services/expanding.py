"""A launched batch becomes variants and render jobs: chunk by chunk, resumable, with COPY."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any
from uuid import UUID

from sqlalchemy import Text, any_, bindparam, func, select
from sqlalchemy.dialects.postgresql import ARRAY, distinct_on
from sqlalchemy.orm import Session

from app.db import config_of
from app.errors import AppError, InvalidInput
from app.models import (
    Artifact,
    Batch,
    BatchState,
    JobPurpose,
    PromptTemplate,
    Upload,
    Variant,
    WebhookEventType,
)
from app.models.base import new_id
from app.services.completion import complete_if_done
from app.services.copying import copy_rows
from app.services.jobs import NewJob, copy_jobs
from app.services.outbox_batches import emit_batch
from app.services.planning import charged_units, plan_as_quoted
from app.services.progress import binding_quote
from app.services.promoted import read_promoted
from app.services.source_rows import RowPlace, RowReader
from app.services.specs import CHUNK_SIZE, BatchSpec
from app.services.variants import (
    ReadRows,
    VariantDraft,
    VariantFactory,
    iterate_drafts,
    row_of,
)
from app.storage import storage_from_url
from engine import registry
from engine.errors import EngineError
from engine.plan import Plan
from engine.types import RenderSettings

_json = json.JSONEncoder(ensure_ascii=False).encode

VARIANT_COLUMNS = (
    "id",
    "workspace_id",
    "batch_id",
    "ordinal",
    "values",
    "passthrough",
    "row_id",
    "prompt",
    "negative_prompt",
    "slots",
    "seed",
    "settings",
    "variant_key",
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the variants of a batch are made from: its spec, its prompts, the rows it reads.

    `weights` is the fingerprint of the model's checkpoint; `rows` is None for typed values.
    """

    spec: BatchSpec
    weights: str
    factory: VariantFactory
    rows: RowReader | None

    @property
    def read_rows(self) -> ReadRows | None:
        return self.rows.read if self.rows else None

    def drafts(self, start: int = 0) -> Iterator[VariantDraft]:
        return iterate_drafts(self.spec, self.factory, read_rows=self.read_rows, start=start)

    def offset_at(self, ordinal: int) -> int:
        """Where in the upload the row of this variant begins, right after the one before it."""
        return self.rows.offset_of(row_of(self.spec, ordinal)) if self.rows else 0


def open_source(
    session: Session,
    spec: BatchSpec,
    *,
    prompt_template_id: UUID,
    upload_id: UUID | None,
    known: RowPlace | None = None,
) -> Source:
    """Find what a batch reads; InvalidInput or EngineError where it cannot be used.

    `known` is a row of the upload whose place is known, so that reading may begin there.
    """
    template = session.get_one(PromptTemplate, prompt_template_id)
    weights = registry.weights_fingerprint(spec.settings.model_id)
    text, negative_text = spec.choose_prompts(template.text, template.negative_text)
    factory = VariantFactory(spec, text=text, negative_text=negative_text, weights=weights)
    if upload_id is None:
        return Source(spec=spec, weights=weights, factory=factory, rows=None)
    rows = RowReader(
        storage_from_url(config_of(session)),
        session.get_one(Upload, upload_id),
        spec,
        known=known or RowPlace(),
    )
    return Source(spec=spec, weights=weights, factory=factory, rows=rows)


def list_expanding(session: Session) -> list[UUID]:
    """Batches that still have variants to be written, the first launched first."""
    return list(
        session.scalars(
            select(Batch.id)
            .where(Batch.completed_at.is_(None), Batch.state == BatchState.EXPANDING)
            .order_by(Batch.launched_at)
        )
    )


def expand_chunk(session: Session, batch_id: UUID, *, chunk_size: int = CHUNK_SIZE) -> bool:
    """Write the next variants and jobs of a batch; whether there are more to write.

    The cursor moves in the same transaction, so a crash leaves whole chunks and nothing else,
    and whoever comes next goes on from there. The chunk's jobs can be claimed once this commits.
    Input that cannot be used ends the batch as failed, with the reason.
    """
    batch = session.scalars(
        select(Batch).where(Batch.id == batch_id).with_for_update(key_share=True, skip_locked=True)
    ).one_or_none()
    # Another process is at it, or the batch was paused, cancelled or expanded in the meantime.
    if batch is None or batch.state is not BatchState.EXPANDING:
        return False
    offset = 0
    try:
        if batch.spec.get("drafts_batch_id"):
            drafts = read_promoted(session, batch)
        else:
            source = _open_at_cursor(session, batch)
            drafts = _next_drafts(source, batch, chunk_size)
            offset = source.offset_at(batch.expansion_cursor + len(drafts))
    except (InvalidInput, EngineError) as error:
        batch.state = BatchState.FAILED
        batch.failure = error.message if isinstance(error, AppError) else str(error)
        more = {"failure": batch.failure}
        emit_batch(session, batch_id, WebhookEventType.BATCH_FAILED, more=more)
        return False
    _write(session, batch, drafts)
    batch.expansion_cursor += len(drafts)
    batch.expansion_offset = offset
    is_done = batch.expansion_cursor >= batch.variant_count
    if is_done:
        batch.state = BatchState.RUNNING
        batch.expanded_at = session.scalar(select(func.now()))
        emit_batch(session, batch_id, WebhookEventType.BATCH_EXPANDED)
        complete_if_done(session, [batch_id])
    return not is_done


def _open_at_cursor(session: Session, batch: Batch) -> Source:
    spec = BatchSpec.model_validate(batch.spec)
    row = row_of(spec, batch.expansion_cursor)
    return open_source(
        session,
        spec,
        prompt_template_id=batch.prompt_template_id,
        upload_id=batch.upload_id,
        known=RowPlace(row=row, offset=batch.expansion_offset),
    )


def _next_drafts(source: Source, batch: Batch, chunk_size: int) -> list[VariantDraft]:
    drafts = list(islice(source.drafts(batch.expansion_cursor), chunk_size))
    expected = min(chunk_size, batch.variant_count - batch.expansion_cursor)
    if len(drafts) != expected:
        raise InvalidInput(
            f"The values give {batch.expansion_cursor + len(drafts):,} variants, but the batch was "
            f"quoted for {batch.variant_count:,}. Its upload has changed; create the batch anew."
        )
    return drafts


def _write(session: Session, batch: Batch, drafts: Sequence[VariantDraft]) -> None:
    # Variants that were previewed are there already; they only get their final job.
    known = _known_variants(session, batch.id, drafts)
    ids = {draft.ordinal: known.get(draft.ordinal) or new_id() for draft in drafts}
    copy_rows(
        session,
        "variants",
        VARIANT_COLUMNS,
        (
            _variant_row(batch, ids[draft.ordinal], draft)
            for draft in drafts
            if draft.ordinal not in known
        ),
    )
    is_forced = bool(batch.spec.get("force_render"))
    artifacts = {} if is_forced else _find_artifacts(session, batch.workspace_id, drafts)
    details = binding_quote(session, batch.id).details
    keys = {draft.ordinal: draft.variant_key for draft in drafts}
    known_artifacts = {ordinal: artifacts.get(key) for ordinal, key in keys.items()}
    for planned in plan_as_quoted(details, [draft.to_request() for draft in drafts]):
        copy_jobs(session, [*_jobs_of_plan(batch, planned, ids, known_artifacts)])


def _jobs_of_plan(
    batch: Batch,
    planned: Plan,
    ids: Mapping[int, UUID],
    artifacts: Mapping[int, UUID | None],
) -> Iterator[NewJob]:
    """A job per variant (by ordinal), placed in the group that one worker will claim as a whole."""
    for group in planned.groups:
        # A group never spans batches: two that plan alike would block each other's claims.
        group_key = f"{batch.id.hex}:{group.group_key}"
        for member in group.members:
            ordinal = int(member.request_id)
            yield NewJob(
                workspace_id=batch.workspace_id,
                batch_id=batch.id,
                variant_id=ids[ordinal],
                purpose=JobPurpose.FINAL,
                affinity_key=group.affinity_key,
                group_key=group_key,
                plan_order=member.plan_order,
                work_units=member.work_units,
                shared_units=charged_units(member),
                fork_steps=member.fork_steps,
                artifact_id=artifacts[ordinal],
            )


def _known_variants(
    session: Session, batch_id: UUID, drafts: Sequence[VariantDraft]
) -> dict[int, UUID]:
    found = session.execute(
        select(Variant.ordinal, Variant.id).where(
            Variant.batch_id == batch_id,
            Variant.ordinal.between(drafts[0].ordinal, drafts[-1].ordinal),
        )
    )
    return {row.ordinal: row.id for row in found}


def _find_artifacts(
    session: Session, workspace_id: UUID, drafts: Sequence[VariantDraft]
) -> dict[str, UUID]:
    """What the workspace has rendered already, the newest of each key."""
    # One array instead of a parameter per key, of which a chunk has thousands.
    keys = bindparam(None, [draft.variant_key for draft in drafts], type_=ARRAY(Text))
    found = session.execute(
        select(Artifact.variant_key, Artifact.id)
        .where(Artifact.workspace_id == workspace_id, Artifact.variant_key == any_(keys))
        .ext(distinct_on(Artifact.variant_key))
        .order_by(Artifact.variant_key, Artifact.created_at.desc())
    )
    return {row.variant_key: row.id for row in found}


def _variant_row(batch: Batch, variant_id: UUID, draft: VariantDraft) -> tuple[Any, ...]:
    return (
        variant_id,
        batch.workspace_id,
        batch.id,
        draft.ordinal,
        _json(draft.values),
        _json(draft.passthrough),
        draft.row_id,
        draft.prompt,
        draft.negative_prompt,
        _json([slot.to_dict() for slot in draft.slots]),
        draft.seed,
        _settings_json(draft.settings),
        draft.variant_key,
    )


@lru_cache(maxsize=64)
def _settings_json(settings: RenderSettings) -> str:
    return _json(settings.to_dict())
