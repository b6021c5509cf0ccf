"""The list of campaigns with their picture and how far they are, in a fixed number of queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import exists, func, or_, select, true
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.models import (
    FINAL_STATES,
    Batch,
    BatchCounter,
    BatchDelta,
    BatchState,
    Campaign,
    JobPurpose,
    JobState,
    RenderJob,
    Review,
    ReviewState,
    Variant,
)

MAX_CAMPAIGNS = 200
_UNSUCCESSFUL = (JobState.FAILED, JobState.QUARANTINED)
_SEARCHED = (Campaign.name, Campaign.brief)
# Batches, variants and paused batches of a campaign without any.
_NONE = (0, 0, 0)
_DECIDED = (ReviewState.APPROVED, ReviewState.REJECTED)


@dataclass(frozen=True, kw_only=True)
class CampaignSummary:
    """One line of the list; `total`, `done` and `failed` count variants of launched batches.

    `unreviewed` are finished and neither approved nor rejected; `paused` counts batches.
    """

    campaign: Campaign
    cover_artifact_id: UUID | None
    batch_count: int
    total: int
    done: int
    failed: int
    unreviewed: int
    paused: int
    cost_micros: int
    changed_at: datetime


def list_campaigns(
    session: Session,
    actor: Actor,
    *,
    with_archived: bool = False,
    only_archived: bool = False,
    search: str = "",
    limit: int = MAX_CAMPAIGNS,
) -> list[CampaignSummary]:
    """Campaigns of the workspace, the last changed first; `search` is a part of name or brief."""
    require(actor, Action.VIEW)
    changed_at = func.coalesce(Campaign.updated_at, Campaign.created_at)
    query = select(Campaign).where(
        Campaign.workspace_id == actor.workspace_id, Campaign.is_hidden.is_(False)
    )
    if only_archived:
        query = query.where(Campaign.archived_at.is_not(None))
    elif not with_archived:
        query = query.where(Campaign.archived_at.is_(None))
    for word in search.replace("\0", "").split():
        found = (column.icontains(word, autoescape=True) for column in _SEARCHED)
        query = query.where(or_(*found))
    campaigns = session.scalars(
        query.order_by(changed_at.desc(), Campaign.id.desc()).limit(limit)
    ).all()
    ids = [campaign.id for campaign in campaigns]
    batches = _batches(session, ids)
    counts = _counts(session, ids)
    covers = _covers(session, ids)
    reviewed = _reviewed(session, ids)
    costs = _costs(session, ids)
    return [
        CampaignSummary(
            campaign=campaign,
            cover_artifact_id=covers.get(campaign.id),
            batch_count=batches.get(campaign.id, _NONE)[0],
            total=batches.get(campaign.id, _NONE)[1],
            paused=batches.get(campaign.id, _NONE)[2],
            done=sum(counts.get((campaign.id, state), 0) for state in FINAL_STATES),
            failed=sum(counts.get((campaign.id, state), 0) for state in _UNSUCCESSFUL),
            unreviewed=max(
                0,
                counts.get((campaign.id, JobState.SUCCEEDED), 0) - reviewed.get(campaign.id, 0),
            ),
            cost_micros=costs.get(campaign.id, 0),
            changed_at=campaign.updated_at or campaign.created_at,
        )
        for campaign in campaigns
    ]


def list_newest(
    session: Session, actor: Actor, *, limit: int, before: UUID | None = None
) -> list[Campaign]:
    """The newest campaigns first; `before` is the last id of the page before (ids are in time)."""
    require(actor, Action.VIEW)
    query = select(Campaign).where(
        Campaign.workspace_id == actor.workspace_id,
        Campaign.is_hidden.is_(False),
        Campaign.archived_at.is_(None),
    )
    if before is not None:
        query = query.where(Campaign.id < before)
    return list(session.scalars(query.order_by(Campaign.id.desc()).limit(limit)))


def _batches(session: Session, ids: list[UUID]) -> dict[UUID, tuple[int, int, int]]:
    """Number of batches, variants of those that were launched, paused ones, by campaign."""
    launched = Batch.state != BatchState.PREVIEWING
    variants = func.coalesce(func.sum(Batch.variant_count).filter(launched), 0)
    paused = func.count().filter(Batch.state == BatchState.PAUSED)
    rows = session.execute(
        select(Batch.campaign_id, func.count(), variants, paused)
        .where(Batch.campaign_id.in_(ids))
        .group_by(Batch.campaign_id)
    )
    return {campaign_id: (number, int(total), held) for campaign_id, number, total, held in rows}


def _reviewed(session: Session, ids: list[UUID]) -> dict[UUID, int]:
    """Variants that somebody has decided on, by campaign."""
    rows = session.execute(
        select(Batch.campaign_id, func.count())
        .select_from(Review)
        .join(Variant, Variant.id == Review.variant_id)
        .join(Batch, Batch.id == Variant.batch_id)
        .where(Batch.campaign_id.in_(ids), Review.state.in_(_DECIDED))
        .group_by(Batch.campaign_id)
    )
    return {row[0]: row[1] for row in rows}


def _costs(session: Session, ids: list[UUID]) -> dict[UUID, int]:
    """What was spent by campaign, previews included."""
    costs: dict[UUID, int] = {}
    for table in (BatchCounter, BatchDelta):
        rows = session.execute(
            select(Batch.campaign_id, func.sum(table.cost_micros))
            .join(Batch, Batch.id == table.batch_id)
            .where(Batch.campaign_id.in_(ids))
            .group_by(Batch.campaign_id)
        )
        for campaign_id, cost in rows:
            costs[campaign_id] = costs.get(campaign_id, 0) + int(cost)
    return costs


def _counts(session: Session, ids: list[UUID]) -> dict[tuple[UUID, str], int]:
    """Final jobs by campaign and state: what is rolled up, and what is not yet."""
    counts: dict[tuple[UUID, str], int] = {}
    for table in (BatchCounter, BatchDelta):
        rows = session.execute(
            select(Batch.campaign_id, table.state, func.sum(table.count))
            .join(Batch, Batch.id == table.batch_id)
            .where(
                Batch.campaign_id.in_(ids),
                table.purpose == JobPurpose.FINAL,
                table.state.in_(FINAL_STATES),
            )
            .group_by(Batch.campaign_id, table.state)
        )
        for campaign_id, state, number in rows:
            counts[campaign_id, state] = counts.get((campaign_id, state), 0) + int(number)
    return counts


def _covers(session: Session, ids: list[UUID]) -> dict[UUID, UUID]:
    """One finished artifact of each campaign, from its newest batch that has any."""
    succeeded = RenderJob.state == JobState.SUCCEEDED
    newest = (
        select(Batch.id)
        .where(
            Batch.campaign_id == Campaign.id,
            exists().where(RenderJob.batch_id == Batch.id, succeeded),
        )
        .order_by(Batch.created_at.desc())
        .limit(1)
        .lateral()
    )
    # Any will do, so no order: the index then gives the first one without reading the rest.
    first = (
        select(RenderJob.artifact_id)
        .where(RenderJob.batch_id == newest.c.id, succeeded)
        .limit(1)
        .lateral()
    )
    rows = session.execute(
        select(Campaign.id, first.c.artifact_id)
        .select_from(Campaign)
        .join(newest, true())
        .join(first, true())
        .where(Campaign.id.in_(ids), first.c.artifact_id.is_not(None))
    )
    return {row.id: row.artifact_id for row in rows}
