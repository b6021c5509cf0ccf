"""Rows for tests, with sensible values for whatever a test does not care about."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any
from uuid import UUID

from sqlalchemy import func
from sqlalchemy.orm import Session

from app.access import Role
from app.models import (
    Batch,
    BatchState,
    Campaign,
    ExpansionMode,
    JobPurpose,
    Membership,
    Parameter,
    ParameterKind,
    PromptTemplate,
    User,
    Variant,
    Workspace,
)
from app.services.jobs import NORMAL_PRIORITY, PREVIEW_PRIORITY, NewJob, copy_jobs
from app.services.leases import NewArtifact
from app.services.variants import variant_key
from engine.types import RenderSettings

PROMPT = "a red sneaker on {{ backdrop }}, in {{ geography }}, for {{ audience }}"
VALUES = {
    "backdrop": ["a beach", "a meadow"],
    "geography": ["paris", "tokyo", "new york"],
    "audience": ["kids", "runners"],
}
# Small and quick: the fields of engine.types.RenderSettings.
SETTINGS: dict[str, Any] = {
    "model_id": "adloom-tiny",
    "task": "t2v",
    "width": 224,
    "height": 128,
    "num_frames": 5,
    "fps": 12,
    "num_inference_steps": 4,
    "guidance_scale": 4.0,
    "profile": "exact",
}

WEIGHTS = "0" * 64

_numbers = count(1)


def make_workspace(session: Session, **values: Any) -> Workspace:
    number = next(_numbers)
    workspace = Workspace(**{"name": f"Workspace {number}", "slug": f"workspace-{number}"} | values)
    session.add(workspace)
    session.flush()
    return workspace


def make_user(
    session: Session, *, workspace: Workspace | None = None, role: Role = Role.OWNER, **values: Any
) -> User:
    number = next(_numbers)
    user = User(
        **{
            "email": f"person{number}@example.com",
            "name": f"Person {number}",
            "password_hash": "no password",
        }
        | values
    )
    session.add(user)
    session.flush()
    if workspace is not None:
        session.add(Membership(workspace_id=workspace.id, user_id=user.id, role=role))
        session.flush()
    return user


def make_campaign(
    session: Session,
    *,
    workspace_id: UUID,
    prompt: str = PROMPT,
    values: dict[str, list[str]] | None = None,
    **columns: Any,
) -> Campaign:
    """A campaign with one prompt template and its parameters."""
    campaign = Campaign(
        **{"workspace_id": workspace_id, "name": "Sneakers", "settings": dict(SETTINGS)} | columns
    )
    session.add(campaign)
    session.flush()
    session.add(
        PromptTemplate(workspace_id=workspace_id, campaign_id=campaign.id, version=1, text=prompt)
    )
    for position, (name, options) in enumerate((VALUES if values is None else values).items()):
        is_known = name in ParameterKind.__members__.values()
        session.add(
            Parameter(
                workspace_id=workspace_id,
                campaign_id=campaign.id,
                name=name,
                kind=ParameterKind(name) if is_known else ParameterKind.TEXT,
                values=options,
                position=position,
            )
        )
    session.flush()
    return campaign


def make_batch(session: Session, *, campaign: Campaign, **columns: Any) -> Batch:
    """A batch row alone, without variants or jobs; see the services for real ones."""
    template = (
        session.query(PromptTemplate)
        .filter_by(campaign_id=campaign.id)
        .order_by(PromptTemplate.version.desc())
        .first()
    )
    assert template is not None
    batch = Batch(
        **{
            "workspace_id": campaign.workspace_id,
            "campaign_id": campaign.id,
            "prompt_template_id": template.id,
            "name": "First batch",
            "state": BatchState.RUNNING,
            "mode": ExpansionMode.CARTESIAN,
            "spec": {},
            "variant_count": 0,
            "launched_at": func.now(),
            "expanded_at": func.now(),
        }
        | columns
    )
    session.add(batch)
    session.flush()
    return batch


def make_jobs(
    session: Session,
    batch: Batch,
    *groups: Sequence[str],
    purpose: JobPurpose = JobPurpose.FINAL,
    **columns: Any,
) -> list[UUID]:
    """Variants with these prompts and one queued job each; every list becomes one group.

    The session must be a system one. Returns the ids of the jobs in order.
    """
    made: list[NewJob] = []
    ordinals = count(session.query(Variant).filter_by(batch_id=batch.id).count())
    settings = RenderSettings.from_dict(SETTINGS)
    for prompts in groups:
        number = next(_numbers)
        for order, prompt in enumerate(prompts):
            variant = Variant(
                workspace_id=batch.workspace_id,
                batch_id=batch.id,
                ordinal=next(ordinals),
                values={"text": prompt},
                passthrough={},
                prompt=prompt,
                negative_prompt="",
                slots=[],
                seed=7,
                settings=SETTINGS,
                variant_key=variant_key(
                    prompt=prompt, negative_prompt="", seed=7, settings=settings, weights=WEIGHTS
                ),
            )
            session.add(variant)
            session.flush()
            job = {
                "workspace_id": batch.workspace_id,
                "batch_id": batch.id,
                "variant_id": variant.id,
                "purpose": purpose,
                "priority": PREVIEW_PRIORITY if purpose is JobPurpose.PREVIEW else NORMAL_PRIORITY,
                "affinity_key": f"affinity-{number}",
                "group_key": f"group-{number}",
                "plan_order": order,
                "work_units": 10.0,
                "shared_units": 8.0,
            }
            made.append(NewJob(**job | columns))
    copy_jobs(session, made)
    return [job.id for job in made]


def make_artifact_files(**values: Any) -> NewArtifact:
    """What a worker hands in when a render is done; the files themselves are not there."""
    return NewArtifact(
        **{
            "media_type": "video/mp4",
            "storage_key": "a/b.mp4",
            "poster_key": "a/b.webp",
            "preview_key": "a/b.anim.webp",
            "sha256": "1" * 64,
            "size_bytes": 1_000,
            "width": 224,
            "height": 128,
            "num_frames": 5,
            "fps": 12.0,
            "profile": "exact",
            "provenance": {"engine_version": "1"},
        }
        | values
    )
