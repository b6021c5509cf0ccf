"""Quick renders of a few variants before launch: ordinary jobs that go first and take few steps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import Conflict, InvalidInput, LimitExceeded
from app.models import Batch, BatchState, JobPurpose, Variant
from app.queues import Queue, ring_after_commit
from app.services.batch_checks import in_drafts
from app.services.blocked_terms import load_index, refuse
from app.services.expanding import open_source
from app.services.jobs import PREVIEW_PRIORITY, NewJob, insert_jobs
from app.services.scoping import get_in_workspace
from app.services.specs import MAX_GROUP, BatchSpec
from app.services.variants import VariantDraft, preview_settings
from engine.plan import plan

# A batch has this many previews at most: they are free.
MAX_PREVIEWS = 12


def render_preview(
    session: Session, actor: Actor, batch_id: UUID, ordinals: Collection[int]
) -> list[UUID]:
    """Have these variants rendered as previews; returns the ids of the jobs that are new.

    Asking again for a variant that has a preview changes nothing.
    """
    require(actor, Action.EDIT)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    session.refresh(batch, with_for_update={"key_share": True})
    if batch.state is not BatchState.PREVIEWING:
        raise Conflict(f"A batch that is {batch.state.value} takes no more previews.")
    wanted = sorted(set(ordinals))
    if not wanted or wanted[0] < 0 or wanted[-1] >= batch.variant_count:
        raise InvalidInput(
            f"Choose variants from 0 to {batch.variant_count - 1:,}.", field="ordinals"
        )
    previewed = _previewed_ordinals(session, batch.id)
    fresh = [ordinal for ordinal in wanted if ordinal not in previewed]
    if len(previewed) + len(fresh) > MAX_PREVIEWS:
        raise LimitExceeded(
            f"A batch may have {MAX_PREVIEWS} previews; launch it to see more.", field="ordinals"
        )
    if not fresh:
        return []
    drafts = _drafts(session, batch, fresh)
    refuse(in_drafts(load_index(session, batch.workspace_id), drafts))
    ids = {draft.ordinal: _add_variant(session, batch, draft) for draft in drafts}
    session.flush()
    jobs = _plan_jobs(batch, drafts, ids)
    insert_jobs(session, jobs)
    ring_after_commit(session, Queue.RENDER)
    return [job.id for job in jobs]


def _previewed_ordinals(session: Session, batch_id: UUID) -> set[int]:
    # Before the launch a batch has no variants but those of its previews.
    return set(session.scalars(select(Variant.ordinal).where(Variant.batch_id == batch_id)))


def _drafts(session: Session, batch: Batch, ordinals: list[int]) -> list[VariantDraft]:
    source = open_source(
        session,
        BatchSpec.model_validate(batch.spec),
        prompt_template_id=batch.prompt_template_id,
        upload_id=batch.upload_id,
    )
    return [next(source.drafts(ordinal)) for ordinal in ordinals]


def _add_variant(session: Session, batch: Batch, draft: VariantDraft) -> UUID:
    variant = Variant(
        workspace_id=batch.workspace_id,
        batch_id=batch.id,
        ordinal=draft.ordinal,
        values=draft.values,
        passthrough=draft.passthrough,
        row_id=draft.row_id,
        prompt=draft.prompt,
        negative_prompt=draft.negative_prompt,
        slots=[slot.to_dict() for slot in draft.slots],
        seed=draft.seed,
        settings=draft.settings.to_dict(),
        variant_key=draft.variant_key,
    )
    session.add(variant)
    session.flush()
    return variant.id


def _plan_jobs(batch: Batch, drafts: list[VariantDraft], ids: dict[int, UUID]) -> list[NewJob]:
    requests = [
        replace(draft.to_request(), settings=preview_settings(draft.settings)) for draft in drafts
    ]
    return [
        NewJob(
            workspace_id=batch.workspace_id,
            batch_id=batch.id,
            variant_id=ids[int(member.request_id)],
            purpose=JobPurpose.PREVIEW,
            priority=PREVIEW_PRIORITY,
            affinity_key=group.affinity_key,
            group_key=f"{batch.id.hex}:{group.group_key}",
            plan_order=member.plan_order,
            work_units=member.work_units,
            shared_units=member.shared_units,
            fork_steps=member.fork_steps,
        )
        for group in plan(requests, max_group=MAX_GROUP).groups
        for member in group.members
    ]
