"""What the guard knows of a family from group to group: failures, and what they left to share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.calibration import Calibration
from engine.comparing import exactly
from engine.guarded import SeenValue, latest_forks
from engine.types import GenerationRequest

# One failed screening may be a variant's own; a second one tells against the parameter's fork.
MAX_FAILURES = 2


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """What failed checks left of a family's sharing: the latest forks by slot.

    An exact check that fails tells against the step cache as well, a screening does not. Where
    nothing is left to share or skip, the renders are the exact ones.
    """

    latest_forks: Mapping[str, int]
    skips_steps: bool

    def apply(self, requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
        if not self.skips_steps and not any(self.latest_forks.values()):
            return [exactly(request) for request in requests]
        return [
            replace(
                request,
                slots=tuple(
                    replace(
                        slot,
                        fork_step=min(
                            slot.fork_step or 0,
                            self.latest_forks.get(slot.name, slot.fork_step or 0),
                        ),
                    )
                    for slot in request.slots
                ),
            )
            for request in requests
        ]


@dataclass(kw_only=True)
class FamilyRecord:
    """What was seen of a family, and how often its screenings failed by parameter.

    It holds until another calibration says better.
    """

    calibration: Calibration | None
    narrowing: Narrowing | None = None
    seen: set[SeenValue] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def suspects(self) -> set[str]:
        """Parameters whose forks failed more often than one variant explains."""
        return {name for name, count in self.failures.items() if count >= MAX_FAILURES}

    def narrow(
        self, requests: Sequence[GenerationRequest], names: Iterable[str], *, skips_steps: bool
    ) -> None:
        """Halve the forks of these parameters; of all where those do not share any step."""
        forks = latest_forks(requests)
        sharing = {name for name in names if forks[name]}
        halved = {name: step // 2 for name, step in forks.items() if name in sharing or not sharing}
        skipped = self.narrowing is None or self.narrowing.skips_steps
        self.narrowing = Narrowing(latest_forks=forks | halved, skips_steps=skips_steps and skipped)
