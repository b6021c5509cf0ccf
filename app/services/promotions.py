"""Finishing drafts in full quality: a batch of its own, which goes on from their stored states.

Its variants are there with its quote, each with the draft that it comes from, so that what is
launched is what was looked at and priced. Which of them have a state is settled by the quote: where
one is lost after that, the render begins anew and costs what was quoted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import insert, select
from sqlalchemy.orm import Session, aliased

from app.access import Action, Actor, require
from app.errors import AppError, Conflict, InvalidInput, NotFound, ServiceUnavailable
from app.models import (
    Batch,
    BatchState,
    JobPurpose,
    JobState,
    Quote,
    RenderJob,
    ReviewState,
    Variant,
    Workspace,
)
from app.models.base import new_id
from app.models.render_job import LIVE_STATES
from app.services import calibrations, draft_states, quotes
from app.services.promoted import LAUNCHED_STATES, draft_ids, draft_of_row, key_of, read_promoted
from app.services.quotes import Drafted, QuoteValue, Rate
from app.services.scoping import get_in_workspace
from app.services.specs import BatchSpec
from app.services.variant_views import FINISHED, VariantFilter, list_variant_ids
from engine import registry
from engine.errors import CheckpointError
from engine.forks import with_fork_steps

# Their variants are written, and priced, in one go.
MAX_VARIANTS = 5_000
# All drafts that somebody has approved.
APPROVED: Final = VariantFilter(review=ReviewState.APPROVED, states=FINISHED)


@dataclass(frozen=True, kw_only=True)
class _Draft:
    variant: Variant
    job: RenderJob


def create_promotion(
    session: Session, actor: Actor, batch_id: UUID, wanted: VariantFilter
) -> Batch:
    """A batch with a quote that finishes drafts; nothing is rendered before its launch.

    Drafts that are finished or being finished already are left out; where no others are meant, or
    the very same are quoted already, that batch is given back. InvalidInput and Conflict say which
    draft cannot be finished, and why.
    """
    require(actor, Action.EDIT)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    # Two who finish the same drafts at once make one batch of them.
    session.refresh(batch, with_for_update={"key_share": True})
    spec = BatchSpec.model_validate(batch.spec)
    if spec.settings.draft_step is None:
        raise Conflict("These are no drafts: they are rendered in full quality already.")
    drafts = _find_drafts(session, actor, batch, wanted)
    weights = _checked_weights(spec, drafts)
    launched, quoted = _list_promotions(session, batch)
    left = [each for each in drafts if each.variant.id not in launched]
    if not left:
        return session.get_one(Batch, launched[drafts[-1].variant.id])
    same = quoted.get(frozenset(each.variant.id for each in left))
    if same is not None:
        return session.get_one(Batch, same)
    made = _add_batch(session, actor, batch, spec, count=len(left))
    rows = [_row(made, draft, place, weights) for place, draft in enumerate(left)]
    session.execute(insert(Variant), rows)
    value = _estimate(session, made, step=spec.settings.draft_step)
    session.add(Quote(workspace_id=made.workspace_id, batch_id=made.id, **asdict(value)))
    session.flush()
    return made


def _find_drafts(
    session: Session, actor: Actor, batch: Batch, wanted: VariantFilter
) -> list[_Draft]:
    ids = list_variant_ids(session, actor, batch.id, wanted)
    if wanted.ids is not None and len(ids) < len(set(wanted.ids)):
        raise _not_of_batch(session, actor, batch, set(wanted.ids) - set(ids))
    if not ids:
        raise InvalidInput("There is no draft among these to finish.", field="variant_ids")
    if len(ids) > MAX_VARIANTS:
        raise InvalidInput(
            f"These are {len(ids):,} drafts; finish {MAX_VARIANTS:,} at once at most.",
            field="variant_ids",
        )
    rows = session.execute(
        select(Variant, RenderJob)
        .outerjoin(
            RenderJob,
            (RenderJob.variant_id == Variant.id) & (RenderJob.purpose == JobPurpose.FINAL),
        )
        .where(Variant.id.in_(ids))
        .order_by(Variant.ordinal)
    )
    return [_Draft(variant=variant, job=_checked_job(variant, job)) for variant, job in rows]


def _not_of_batch(
    session: Session, actor: Actor, batch: Batch, strangers: Collection[UUID]
) -> AppError:
    """What to say of variants that are not drafts of this batch."""
    found = session.execute(
        select(Variant.ordinal, Batch.name, Variant.settings)
        .join(Batch, Batch.id == Variant.batch_id)
        .where(Variant.id.in_(strangers), Variant.workspace_id == actor.workspace_id)
        .limit(1)
    ).one_or_none()
    if found is None:
        return NotFound("One of these variants is not in this workspace; nothing was made.")
    model = found.settings["model_id"]
    is_other = model != batch.spec["settings"]["model_id"]
    other = f", and of another model ({model})" if is_other else ""
    return InvalidInput(
        f"Variant {found.ordinal + 1} is of another batch, “{found.name}”{other}. Finish the "
        "drafts of one batch at a time.",
        field="variant_ids",
    )


def _checked_job(variant: Variant, job: RenderJob | None) -> RenderJob:
    """The job of a draft; Conflict unless it has been rendered."""
    name = f"The draft of variant {variant.ordinal + 1}"
    if job is None or job.state in LIVE_STATES:
        raise Conflict(f"{name} is still being rendered. Finish it when it is there.")
    if job.state is not JobState.SUCCEEDED:
        reason = f": {job.error_message}" if job.error_message else ""
        raise Conflict(f"{name} is {job.state.value}{reason}. Leave it out, or try it again first.")
    return job


def _checked_weights(spec: BatchSpec, drafts: Sequence[_Draft]) -> str:
    """The fingerprint of the weights; Conflict where the drafts were rendered with others."""
    try:
        weights = registry.weights_fingerprint(spec.settings.model_id)
    except CheckpointError as error:
        raise ServiceUnavailable(f"The model's weights cannot be used: {error}") from error
    for draft in (draft_of_row(each.variant) for each in drafts):
        if key_of(draft, draft.settings, weights) != draft.variant_key:
            label = registry.get_model(spec.settings.model_id).label
            raise Conflict(
                f"The weights of {label}, or the engine, have changed since these drafts were "
                "rendered: they would not come out as they look. Make new drafts."
            )
    return weights


def _list_promotions(
    session: Session, batch: Batch
) -> tuple[dict[UUID, UUID], dict[frozenset[UUID], UUID]]:
    """Batches that finish drafts of this one: by draft if launched, by all their drafts if not."""
    draft, finished = aliased(Variant), aliased(Variant)
    states = (*LAUNCHED_STATES, BatchState.PREVIEWING)
    rows = session.execute(
        select(finished.batch_id, finished.draft_id, Batch.state)
        .join(draft, draft.id == finished.draft_id)
        .join(Batch, Batch.id == finished.batch_id)
        .where(draft.batch_id == batch.id, Batch.state.in_(states))
        .order_by(finished.batch_id)
    )
    launched: dict[UUID, UUID] = {}
    quoted: dict[UUID, set[UUID]] = {}
    for row in rows:
        if row.state is BatchState.PREVIEWING:
            quoted.setdefault(row.batch_id, set()).add(row.draft_id)
        else:
            launched[row.draft_id] = row.batch_id
    return launched, {frozenset(ids): id_ for id_, ids in quoted.items()}


def _add_batch(
    session: Session, actor: Actor, batch: Batch, spec: BatchSpec, *, count: int
) -> Batch:
    settings = spec.settings.model_copy(update={"draft_step": None})
    changes = {"settings": settings, "drafts_batch_id": str(batch.id), "force_render": False}
    made = Batch(
        workspace_id=batch.workspace_id,
        campaign_id=batch.campaign_id,
        prompt_template_id=batch.prompt_template_id,
        upload_id=batch.upload_id,
        name=f"{batch.name}, in full quality"[:200],
        state=BatchState.PREVIEWING,
        mode=batch.mode,
        spec=spec.model_copy(update=changes).to_json(),
        variant_count=count,
        created_by=actor.user_id,
    )
    session.add(made)
    session.flush()
    return made


def _row(batch: Batch, draft: _Draft, ordinal: int, weights: str) -> dict[str, object]:
    """The finished render of a draft, on the same way through the tree."""
    of = draft_of_row(draft.variant)
    settings = of.settings.finished
    slots = with_fork_steps(of.to_request(), draft.job.fork_steps).slots
    return {
        "id": new_id(),
        "workspace_id": batch.workspace_id,
        "batch_id": batch.id,
        "ordinal": ordinal,
        "values": of.values,
        "passthrough": of.passthrough,
        "row_id": of.row_id,
        "prompt": of.prompt,
        "negative_prompt": of.negative_prompt,
        "slots": [slot.to_dict() for slot in slots],
        "seed": of.seed,
        "settings": settings.to_dict(),
        "variant_key": key_of(of, settings, weights),
        "draft_id": draft.variant.id,
    }


def _estimate(session: Session, batch: Batch, *, step: int) -> QuoteValue:
    """The price of a batch whose variants are there; of those without a state in full."""
    spec = BatchSpec.model_validate(batch.spec)
    ids = draft_ids(session, batch)
    known = draft_states.find_kept(session, [id_ for id_ in ids.values() if id_])
    requests = [draft.to_request() for draft in read_promoted(session, batch)]
    kept = [request for request in requests if ids[int(request.request_id)] in known]
    anew = [request for request in requests if ids[int(request.request_id)] not in known]
    workspace = session.get_one(Workspace, batch.workspace_id)
    return quotes.estimate_finish(
        spec,
        Drafted(step=step, kept=kept, anew=anew),
        Rate(micros_per_unit=workspace.rate_micros_per_unit, currency=workspace.currency),
        measured=calibrations.load_with_shipped(session, spec.settings.model_id),
    )
