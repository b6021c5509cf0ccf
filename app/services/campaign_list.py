"""The list of campaigns with their picture and how far they are, in a fixed number of queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import exists, func, select, true
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
)

MAX_CAMPAIGNS = 200
_UNSUCCESSFUL = (JobState.FAILED, JobState.QUARANTINED)


@dataclass(frozen=True, kw_only=True)
class CampaignSummary:
    """One line of the list; `total`, `done` and `failed` count variants of launched batches."""

    campaign: Campaign
    cover_artifact_id: UUID | None
    batch_count: int
    total: int
    done: int
    failed: int
    changed_at: datetime


def list_campaigns(
    session: Session, actor: Actor, *, with_archived: bool = False, limit: int = MAX_CAMPAIGNS
) -> list[CampaignSummary]:
    """Campaigns of the workspace, the last changed first."""
    require(actor, Action.VIEW)
    changed_at = func.coalesce(Campaign.updated_at, Campaign.created_at)
    query = select(Campaign).where(
        Campaign.workspace_id == actor.workspace_id, Campaign.is_hidden.is_(False)
    )
    if not with_archived:
        query = query.where(Campaign.archived_at.is_(None))
    campaigns = session.scalars(
        query.order_by(changed_at.desc(), Campaign.id.desc()).limit(limit)
    ).all()
    ids = [campaign.id for campaign in campaigns]
    batches = _batches(session, ids)
    counts = _counts(session, ids)
    covers = _covers(session, ids)
    return [
        CampaignSummary(
            campaign=campaign,
            cover_artifact_id=covers.get(campaign.id),
            batch_count=batches.get(campaign.id, (0, 0))[0],
            total=batches.get(campaign.id, (0, 0))[1],
            done=sum(counts.get((campaign.id, state), 0) for state in FINAL_STATES),
            failed=sum(counts.get((campaign.id, state), 0) for state in _UNSUCCESSFUL),
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


def _batches(session: Session, ids: list[UUID]) -> dict[UUID, tuple[int, int]]:
    """Number of batches, and variants of those that were launched, by campaign."""
    launched = Batch.state != BatchState.PREVIEWING
    variants = func.coalesce(func.sum(Batch.variant_count).filter(launched), 0)
    rows = session.execute(
        select(Batch.campaign_id, func.count(), variants)
        .where(Batch.campaign_id.in_(ids))
        .group_by(Batch.campaign_id)
    )
    return {campaign_id: (batches, int(total)) for campaign_id, batches, total in rows}


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
