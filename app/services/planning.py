"""On which terms a batch is planned: the quote settles them, and the expansion keeps to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from app.services.expansion import SourceRow
from app.services.specs import MAX_GROUP, BatchSpec
from engine.plan import Calibration, Plan, PlannedRequest, known_fork_steps, plan
from engine.types import GenerationRequest, QualityProfile, RenderSettings

ForkSteps = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class PlanTerms:
    """What decides the plan of a batch besides its requests.

    `varying` names the parameters that have more than one value in the whole batch, so that each
    chunk is planned as a part of it. `fork_steps` are by parameter kind, for each of the settings
    that occur, and `calibrated` those settings whose steps were measured, which the guard checks
    less often: what is measured later changes no batch that is priced already.
    """

    varying: frozenset[str]
    fork_steps: Mapping[RenderSettings, ForkSteps] = field(default_factory=dict)
    calibrated: frozenset[RenderSettings] = frozenset()

    def plan(self, requests: Iterable[GenerationRequest]) -> Plan:
        return plan(
            requests,
            max_group=MAX_GROUP,
            varying=self.varying,
            fork_steps_of=lambda settings: (
                self.fork_steps.get(settings) or known_fork_steps(settings)
            ),
            is_calibrated=self.calibrated.__contains__,
        )

    def of_profile(self, profile: QualityProfile) -> PlanTerms:
        """These terms without what holds for other profiles."""
        return PlanTerms(
            varying=self.varying,
            fork_steps={
                settings: steps
                for settings, steps in self.fork_steps.items()
                if settings.profile is profile
            },
            calibrated=frozenset(each for each in self.calibrated if each.profile is profile),
        )

    def to_json(self) -> dict[str, Any]:
        """What the quote keeps; `from_json` reads it."""
        return {
            "varying": sorted(self.varying),
            "fork_steps": [
                {
                    "settings": settings.to_dict(),
                    "steps": dict(steps),
                    "is_calibrated": settings in self.calibrated,
                }
                for settings, steps in self.fork_steps.items()
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        steps = {
            RenderSettings.from_dict(each["settings"]): each for each in data.get("fork_steps", ())
        }
        return cls(
            varying=frozenset(data.get("varying", ())),
            fork_steps={settings: each["steps"] for settings, each in steps.items()},
            calibrated=frozenset(
                settings for settings, each in steps.items() if each["is_calibrated"]
            ),
        )


def charged_units(member: PlannedRequest) -> float:
    """Work units that a variant is charged at most.

    Where the guard checks it, it is delivered as its exact render, and costs no more than that.
    """
    return min(member.work_units, member.shared_units + member.guard_units)


class TermsBuilder:
    """Plans chunk by chunk and notes the fork steps of each of the settings that it meets."""

    def __init__(
        self,
        varying: Iterable[str],
        *,
        find_calibration: Callable[[RenderSettings], Calibration | None],
    ) -> None:
        self._varying = frozenset(varying)
        self._find_calibration = find_calibration
        self._fork_steps: dict[RenderSettings, ForkSteps] = {}
        self._calibrated: set[RenderSettings] = set()

    @property
    def terms(self) -> PlanTerms:
        return PlanTerms(
            varying=self._varying,
            fork_steps=self._fork_steps,
            calibrated=frozenset(self._calibrated),
        )

    def plan(self, requests: Iterable[GenerationRequest]) -> Plan:
        return plan(
            requests,
            max_group=MAX_GROUP,
            varying=self._varying,
            fork_steps_of=self._known_fork_steps,
            is_calibrated=self._calibrated.__contains__,
        )

    def _known_fork_steps(self, settings: RenderSettings) -> ForkSteps:
        if settings not in self._fork_steps:
            calibration = self._find_calibration(settings)
            if calibration is not None:
                self._calibrated.add(settings)
            self._fork_steps[settings] = known_fork_steps(settings, calibration=calibration)
        return self._fork_steps[settings]


def find_varying(
    spec: BatchSpec, read_rows: Callable[[], Iterable[SourceRow]] | None
) -> frozenset[str]:
    """The parameters with more than one value; rows are read until each column has shown two."""
    varying = {name for name, values in spec.typed_values.items() if len(set(values)) > 1}
    first: dict[str, str] = {}
    open_names = set(spec.columns)
    for row in read_rows() if read_rows and open_names else ():
        for name in [*open_names]:
            if row.values[name] != first.setdefault(name, row.values[name]):
                open_names.remove(name)
                varying.add(name)
        if not open_names:
            break
    return frozenset(varying)
