"""Who may do what: roles, actions, and the actor that every service takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from app.errors import Forbidden


class Role(StrEnum):
    OWNER = "owner"
    EDITOR = "editor"
    VIEWER = "viewer"


class Action(StrEnum):
    VIEW = "view"
    EDIT = "edit"  # campaigns, prompt templates, uploads
    LAUNCH = "launch"  # spends money
    REVIEW = "review"
    MANAGE = "manage"  # members, keys, limits


ALLOWED: dict[Role, frozenset[Action]] = {
    Role.VIEWER: frozenset({Action.VIEW}),
    Role.EDITOR: frozenset({Action.VIEW, Action.EDIT, Action.LAUNCH, Action.REVIEW}),
    Role.OWNER: frozenset(Action),
}


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Somebody (a person, an API key, or the system itself) acting in one workspace.

    `scopes` narrows what an API key may do; None means everything that the role allows.
    """

    workspace_id: UUID
    role: Role
    user_id: UUID | None = None
    api_key_id: UUID | None = None
    scopes: frozenset[Action] | None = field(default=None)

    @classmethod
    def system(cls, workspace_id: UUID) -> Actor:
        """The actor of background work done on behalf of a workspace."""
        return cls(workspace_id=workspace_id, role=Role.OWNER)

    def may(self, action: Action) -> bool:
        return action in ALLOWED[self.role] and (self.scopes is None or action in self.scopes)


def require(actor: Actor, action: Action) -> None:
    """Raise Forbidden unless the actor may do it."""
    if not actor.may(action):
        raise Forbidden(f"Your role ({actor.role}) does not allow this: it needs “{action}”.")
