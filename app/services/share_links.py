"""Share links: made for one batch, found by their token, expiring and revocable."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, Role, require
from app.errors import InvalidInput, NotFound
from app.models import Artifact, Batch, JobState, RenderJob, ReviewState, ShareLink, Variant
from app.services.reviews import set_review
from app.services.scoping import get_in_workspace
from app.services.variant_views import FINISHED, VariantFilter

MAX_NAME_LENGTH: Final = 120
MAX_DAYS: Final = 90
TOKEN_BYTES: Final = 32
# How fresh the note of the last use has to be.
_LAST_USED_EVERY: Final = timedelta(minutes=1)


def create_link(
    session: Session, actor: Actor, batch_id: UUID, *, name: str, can_review: bool, days: int
) -> tuple[ShareLink, str]:
    """A link and its token, which nobody can read again; InvalidInput names the field."""
    require(actor, Action.EDIT)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    name = " ".join(name.split())
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidInput(
            f"Say whom the link is for, in up to {MAX_NAME_LENGTH} characters.", field="name"
        )
    if not 1 <= days <= MAX_DAYS:
        raise InvalidInput(f"A link lives for 1 to {MAX_DAYS} days.", field="days")
    token = secrets.token_urlsafe(TOKEN_BYTES)
    link = ShareLink(
        workspace_id=actor.workspace_id,
        batch_id=batch.id,
        token_sha256=_sha256(token),
        name=name,
        can_review=can_review,
        created_by=actor.user_id,
        expires_at=func.now() + timedelta(days=days),
    )
    session.add(link)
    session.flush()
    session.refresh(link)
    return link, token


def list_links(session: Session, actor: Actor, batch_id: UUID) -> list[ShareLink]:
    """Links of a batch that still work, the newest first."""
    require(actor, Action.VIEW)
    return list(
        session.scalars(
            select(ShareLink)
            .where(
                ShareLink.workspace_id == actor.workspace_id,
                ShareLink.batch_id == batch_id,
                ShareLink.revoked_at.is_(None),
                ShareLink.expires_at > func.now(),
            )
            .order_by(ShareLink.id.desc())
        )
    )


def revoke_link(session: Session, actor: Actor, batch_id: UUID, link_id: UUID) -> None:
    """The link stops working at once; what was reviewed by it stays."""
    require(actor, Action.EDIT)
    link = session.scalars(
        select(ShareLink).where(
            ShareLink.id == link_id,
            ShareLink.batch_id == batch_id,
            ShareLink.workspace_id == actor.workspace_id,
        )
    ).one_or_none()
    if link is None:
        raise NotFound("There is no such link.")
    if link.revoked_at is None:
        link.revoked_at = session.scalar(select(func.now()))
        session.flush()


def find_link(session: Session, token: str) -> ShareLink | None:
    """The link of a token, from a system session; None once it has expired or was revoked."""
    now = session.scalar(select(func.now()))
    assert now is not None
    link = session.scalars(
        select(ShareLink).where(
            ShareLink.token_sha256 == _sha256(token),
            ShareLink.revoked_at.is_(None),
            ShareLink.expires_at > now,
        )
    ).one_or_none()
    is_noted = link and link.last_used_at and now - link.last_used_at < _LAST_USED_EVERY
    if link is not None and not is_noted:
        link.last_used_at = now
    return link


def actor_of_link(link: ShareLink) -> Actor:
    """Who acts when this link is used: somebody who sees, and reviews if the link allows it."""
    scopes = {Action.VIEW, Action.REVIEW} if link.can_review else {Action.VIEW}
    return Actor(workspace_id=link.workspace_id, role=Role.EDITOR, scopes=frozenset(scopes))


def shared_variants(link: ShareLink) -> VariantFilter:
    """What is shown: all that is finished, but what somebody else has turned down."""
    return VariantFilter(states=FINISHED, without_rejected=True, rejected_by=link.id)


def get_shared_artifact(session: Session, link: ShareLink, artifact_id: UUID) -> Artifact:
    """A finished artifact of the link's batch; NotFound for any other."""
    artifact = session.scalars(
        select(Artifact).where(
            Artifact.id == artifact_id,
            Artifact.workspace_id == link.workspace_id,
            exists().where(
                RenderJob.artifact_id == Artifact.id,
                RenderJob.batch_id == link.batch_id,
                RenderJob.state == JobState.SUCCEEDED,
            ),
        )
    ).one_or_none()
    if artifact is None:
        raise NotFound("There is no such file in what was shared.")
    return artifact


def review_by_link(
    session: Session,
    link: ShareLink,
    variant_id: UUID,
    *,
    state: ReviewState,
    reason: str,
) -> None:
    """A review by whoever has the link; NotFound for a variant of another batch."""
    actor = actor_of_link(link)
    require(actor, Action.REVIEW)
    variant = get_in_workspace(session, actor, Variant, variant_id)
    if variant.batch_id != link.batch_id:
        raise NotFound("There is no such variant in what was shared.")
    set_review(session, actor, [variant_id], state, reason, share_link_id=link.id)


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
