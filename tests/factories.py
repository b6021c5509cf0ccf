"""Rows for tests, with sensible values for whatever a test does not care about."""

from __future__ import annotations

from itertools import count
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.access import Role
from app.models import (
    Batch,
    BatchState,
    Campaign,
    ExpansionMode,
    Membership,
    Parameter,
    ParameterKind,
    PromptTemplate,
    User,
    Workspace,
)

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
        }
        | columns
    )
    session.add(batch)
    session.flush()
    return batch
