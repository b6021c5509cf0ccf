"""A worker takes a whole group of jobs: nobody else gets a part of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, exists, func, select, text, true, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from app.models import (
    CLAIMABLE_STATES,
    LEASE_TOKENS,
    Artifact,
    Batch,
    BatchState,
    JobState,
    RenderJob,
    Variant,
)
from app.services import jobs
from app.services.budgets import keep_within_cap
from app.services.claimed import AnyRow, ClaimedGroup, claimed_job, effective_key
from app.services.completion import complete_if_done
from app.services.ranking import Candidate, rank_candidates
from app.services.specs import MAX_GROUP

LEASE_S = 60.0
# Per job; the n-th job of a group has n times as long to end.
HARD_DEADLINE_S = 1_800.0
# Then others took everything that was found: the worker asks again a little later.
MAX_ROUNDS = 16
# How long a job waits for another worker that renders the same pixels at the moment.
TWIN_WAIT_S = 5.0

OPEN_STATES = (BatchState.PREVIEWING, BatchState.EXPANDING, BatchState.RUNNING)


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseTerms:
    """How long a claim holds without a heartbeat, and how long one render may take at most."""

    lease_s: float = LEASE_S
    hard_deadline_s: float = HARD_DEADLINE_S


def claim(
    session: Session,
    *,
    worker: str,
    held_affinity: Sequence[str] = (),
    limit: int = MAX_GROUP,
    lease_s: float = LEASE_S,
    hard_deadline_s: float = HARD_DEADLINE_S,
) -> ClaimedGroup | None:
    """Lease the best waiting group, at most `limit` jobs of it; None when nothing waits.

    `worker` must name one run of one process: a restarted process uses a new name, or it would
    renew leases on jobs that it no longer renders. What exists already is not rendered again:
    such jobs succeed here with the artifact that is there.
    """
    terms = LeaseTerms(lease_s=lease_s, hard_deadline_s=hard_deadline_s)
    tried: set[str] = set()
    for _ in range(MAX_ROUNDS):
        candidates = rank_candidates(session, held_affinity=held_affinity, excluded=tried)
        if not candidates:
            break
        for candidate in candidates:
            if candidate.unit_key in tried:
                continue
            tried.add(candidate.unit_key)
            if not _lock(session, candidate.unit_key):
                continue
            waiting = _waiting_rows(session, candidate, limit=limit)
            rows = keep_within_cap(session, _to_render(session, waiting))
            if rows:
                return _lease(session, candidate, rows, worker=worker, terms=terms)
    return None


def _lock(session: Session, unit_key: str) -> bool:
    """Whether this transaction may claim from the group; another one that claims holds it."""
    # Between ranking and claiming another worker may want the same group. Row locks alone would
    # let each of the two take some of its rows.
    found = session.scalar(
        text("SELECT pg_try_advisory_xact_lock(hashtextextended(:unit_key, 0))"),
        {"unit_key": unit_key},
    )
    return bool(found)


def _waiting_rows(session: Session, candidate: Candidate, *, limit: int) -> Sequence[AnyRow]:
    """The jobs of the group that still wait, locked; none when a member is leased by now."""
    leased = aliased(RenderJob)
    unit: ColumnElement[bool]
    if candidate.is_single:
        unit = RenderJob.id == candidate.job_id
    else:
        unit = (
            (RenderJob.group_key == candidate.group_key)
            & ~RenderJob.is_single
            & ~exists().where(
                leased.group_key == candidate.group_key,
                leased.state == JobState.RUNNING,
                ~leased.is_single,
            )
        )
    return session.execute(
        select(
            RenderJob.id.label("job_id"),
            RenderJob.workspace_id,
            RenderJob.batch_id,
            RenderJob.purpose,
            RenderJob.plan_order,
            RenderJob.work_units,
            RenderJob.shared_units,
            RenderJob.fork_steps,
            Variant.id.label("variant_id"),
            Variant.prompt,
            Variant.negative_prompt,
            Variant.slots,
            Variant.seed,
            Variant.settings,
            Variant.variant_key,
            Variant.draft_id,
            Batch.launched_at,
            Batch.spend_cap_micros,
            Batch.spec["force_render"].as_boolean().label("is_forced"),
        )
        .join(Variant, Variant.id == RenderJob.variant_id)
        .join(Batch, Batch.id == RenderJob.batch_id)
        .where(
            unit,
            RenderJob.state.in_(CLAIMABLE_STATES),
            RenderJob.scheduled_at <= func.now(),
            Batch.state.in_(OPEN_STATES),
        )
        .order_by(RenderJob.plan_order)
        .limit(limit)
        .with_for_update(of=RenderJob, skip_locked=True)
    ).all()


def _to_render(session: Session, rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Those that must be rendered; the others are reused, or wait for a twin elsewhere."""
    if not rows:
        return []
    keys = {row.job_id: effective_key(row) for row in rows}
    # First of all: what another claim does with the same keys is over, or waits for this one.
    contested = _lock_keys(session, rows[0].workspace_id, set(keys.values()))
    artifacts = _find_artifacts(session, rows[0], set(keys.values()))
    reused = {job_id: artifacts[key] for job_id, key in keys.items() if key in artifacts}
    if reused:
        jobs.succeed_by_reuse(session, reused)
        complete_if_done(session, [rows[0].batch_id])
    twins = _keys_in_render(session, rows[0], {row.variant_key for row in rows})
    waiting = [
        row.job_id
        for row in rows
        if row.job_id not in reused and (row.variant_key in twins or keys[row.job_id] in contested)
    ]
    if waiting:
        session.execute(
            update(RenderJob)
            .where(RenderJob.id.in_(waiting))
            .values(scheduled_at=func.now() + timedelta(seconds=TWIN_WAIT_S)),
            execution_options={"synchronize_session": False},
        )
    left_out = {*reused, *waiting}
    return [row for row in rows if row.job_id not in left_out]


def _lock_keys(session: Session, workspace_id: UUID, keys: Collection[str]) -> set[str]:
    """Lock keys of pixels until the end of the transaction; returns those that others hold.

    Two that claim equal variants in the same instant do not see each other's jobs running yet:
    the lock lets only one of them render.
    """
    rows = session.execute(
        text(
            "SELECT key, pg_try_advisory_xact_lock(hashtextextended(:workspace || key, 0))"
            " AS is_free FROM unnest(CAST(:keys AS text[])) AS wanted (key)"
        ),
        {"workspace": str(workspace_id), "keys": sorted(keys)},
    )
    return {row.key for row in rows if not row.is_free}


def _find_artifacts(session: Session, row: AnyRow, keys: set[str]) -> dict[str, UUID]:
    """The newest artifact of each key in the workspace of the group (all its rows share one).

    A batch that asks for fresh renders takes only what was made since its launch.
    """
    fresh = Artifact.created_at >= row.launched_at if row.is_forced else true()
    found = session.execute(
        select(Artifact.variant_key, Artifact.id)
        .where(Artifact.workspace_id == row.workspace_id, Artifact.variant_key.in_(keys), fresh)
        .ext(distinct_on(Artifact.variant_key))
        .order_by(Artifact.variant_key, Artifact.created_at.desc())
    )
    return {row.variant_key: row.id for row in found}


def _keys_in_render(session: Session, row: AnyRow, keys: set[str]) -> set[str]:
    return set(
        session.scalars(
            select(Variant.variant_key)
            .join(RenderJob, RenderJob.variant_id == Variant.id)
            .where(
                Variant.workspace_id == row.workspace_id,
                Variant.variant_key.in_(keys),
                RenderJob.purpose == row.purpose,
                RenderJob.state == JobState.RUNNING,
            )
        )
    )


def _lease(
    session: Session,
    candidate: Candidate,
    rows: Sequence[AnyRow],
    *,
    worker: str,
    terms: LeaseTerms,
) -> ClaimedGroup:
    token = session.scalar(select(LEASE_TOKENS.next_value()))
    assert token is not None
    position = RenderJob.plan_order - rows[0].plan_order + 1
    moved = jobs.transition(
        session,
        RenderJob.id.in_([row.job_id for row in rows]),
        to=JobState.RUNNING,
        changes={
            "lease_token": token,
            "lease_worker": worker,
            "lease_expires_at": func.now() + timedelta(seconds=terms.lease_s),
            "deadline_at": func.now() + position * timedelta(seconds=terms.hard_deadline_s),
            "start_count": RenderJob.start_count + 1,
        },
    )
    _note_served(session, candidate.batch_id)
    numbers = {job.id: job.start_count for job in moved}
    return ClaimedGroup(
        token=token,
        group_key=candidate.group_key,
        affinity_key=candidate.affinity_key,
        jobs=tuple(claimed_job(row, number=numbers[row.job_id]) for row in rows),
    )


def _note_served(session: Session, batch_id: UUID) -> None:
    # Best effort: nobody waits for a batch that is locked by its expansion or its end.
    free = (
        select(Batch.id)
        .where(Batch.id == batch_id)
        .with_for_update(key_share=True, skip_locked=True)
        .scalar_subquery()
    )
    session.execute(
        update(Batch).where(Batch.id == free).values(last_claimed_at=func.now()),
        execution_options={"synchronize_session": False},
    )
