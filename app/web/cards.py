"""Campaigns and batches in lists: name, picture, how far they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from app.access import Actor
from app.models import Batch, BatchState
from app.services import batches
from app.services.campaign_list import list_campaigns
from app.web.media import media_url

MAX_BATCHES = 50


@dataclass(frozen=True, kw_only=True)
class CampaignCard:
    id: UUID
    name: str
    cover_url: str | None
    total: int
    done: int
    failed: int
    unreviewed: int
    paused: int
    cost_micros: int
    changed_at: datetime


@dataclass(frozen=True, kw_only=True)
class BatchRow:
    id: UUID
    name: str
    state: BatchState
    total: int
    done: int
    failed: int
    cost_micros: int
    created_at: datetime


def campaign_cards(
    session: Session, actor: Actor, *, search: str = "", is_archive: bool = False
) -> list[CampaignCard]:
    found = list_campaigns(session, actor, search=search, only_archived=is_archive)
    return [
        CampaignCard(
            id=item.campaign.id,
            name=item.campaign.name,
            cover_url=media_url(item.cover_artifact_id, "poster")
            if item.cover_artifact_id
            else None,
            total=item.total,
            done=item.done,
            failed=item.failed,
            unreviewed=item.unreviewed,
            paused=item.paused,
            cost_micros=item.cost_micros,
            changed_at=item.changed_at,
        )
        for item in found
    ]


def batch_rows(session: Session, actor: Actor, campaign_id: UUID) -> list[BatchRow]:
    """The newest batches of a campaign with their progress."""
    found = batches.list_batches(session, actor, campaign_id=campaign_id, limit=MAX_BATCHES)
    return [_batch_row(item, batches.get_progress(session, actor, item.id)) for item in found]


def _batch_row(batch: Batch, progress: batches.Progress) -> BatchRow:
    return BatchRow(
        id=batch.id,
        name=batch.name,
        state=batch.state,
        total=progress.total,
        done=progress.done,
        failed=progress.failed,
        cost_micros=progress.cost_micros,
        created_at=batch.created_at,
    )
