"""Names of stored states: all that decides an edge's pixels beside the facts of the process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.branches import Branch
from engine.plan import affinity_key
from engine.types import StepCachePolicy


@dataclass(frozen=True, kw_only=True)
class EdgeKeys:
    """Names of the states of one family's tree; `family` is its affinity key."""

    family: str
    policy: StepCachePolicy | None
    is_fast: bool

    def pause(self, branch: Branch) -> str:
        """The name of a state in the midst of an edge, or at its end."""
        return self._digest(self.family, branch.key)

    def draft(self, leaf: Branch) -> str:
        """The name of a variant's state where its draft ends, alike for draft and finished render.

        The way there counts by its fork steps: siblings of the two need not be the same.
        """
        request = leaf.requests[0]
        finished = replace(request, settings=request.settings.finished)
        forks = sorted((slot.name, slot.fork_step or 0) for slot in request.slots)
        return self._digest("draft", affinity_key(finished), leaf.texts, forks)

    def _digest(self, kind: str, *place: Sequence[Any]) -> str:
        policy = None if self.policy is None else asdict(self.policy)
        document = (kind, policy, self.is_fast, *place)
        return hashlib.sha256(json.dumps(document).encode()).hexdigest()
