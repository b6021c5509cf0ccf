"""How the variants of a batch share their steps: the denoising tree of one group, as planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.models import Batch, JobPurpose, RenderJob, Variant
from app.services.scoping import get_in_workspace
from app.services.specs import CHUNK_SIZE
from engine.forks import with_fork_steps
from engine.tree import DenoisingTree, build_tree
from engine.types import GenerationRequest, PromptSlot, RenderSettings


@dataclass(frozen=True, kw_only=True)
class SharedGroup:
    """The tree of one group; its request ids are those of variants, `ordinals` places them."""

    tree: DenoisingTree
    ordinals: Mapping[str, int]


def get_shared_group(session: Session, actor: Actor, batch_id: UUID) -> SharedGroup | None:
    """The group of the batch's first variant; None before it is expanded.

    One group, however large the batch is: the others are planned alike.
    """
    require(actor, Action.VIEW)
    get_in_workspace(session, actor, Batch, batch_id)
    first = (
        select(RenderJob.group_key)
        .join(Variant, Variant.id == RenderJob.variant_id)
        .where(
            Variant.batch_id == batch_id,
            Variant.ordinal == 0,
            RenderJob.purpose == JobPurpose.FINAL,
        )
        .scalar_subquery()
    )
    rows = session.execute(
        select(
            Variant.id,
            Variant.ordinal,
            Variant.prompt,
            Variant.negative_prompt,
            Variant.slots,
            Variant.seed,
            Variant.settings,
            RenderJob.fork_steps,
        )
        .join(RenderJob, RenderJob.variant_id == Variant.id)
        .where(
            # A group lies within a chunk, so the rest of the batch is not looked at.
            Variant.batch_id == batch_id,
            Variant.ordinal < CHUNK_SIZE,
            RenderJob.purpose == JobPurpose.FINAL,
            RenderJob.group_key == first,
        )
        .order_by(RenderJob.plan_order)
    ).all()
    if not rows:
        return None
    requests = [
        with_fork_steps(
            GenerationRequest(
                request_id=str(row.id),
                prompt=row.prompt,
                negative_prompt=row.negative_prompt,
                slots=tuple(PromptSlot.from_dict(slot) for slot in row.slots),
                seed=row.seed,
                settings=RenderSettings.from_dict(row.settings),
            ),
            row.fork_steps,
        )
        for row in rows
    ]
    return SharedGroup(
        tree=build_tree(requests), ordinals={str(row.id): row.ordinal for row in rows}
    )
