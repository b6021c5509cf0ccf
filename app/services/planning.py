"""On which terms a batch is planned: the quote settles them, and the expansion keeps to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from app.services.expansion import SourceRow
from app.services.specs import MAX_DRAFTED_GROUP, MAX_GROUP, BatchSpec
from engine.plan import Calibration, Plan, PlannedRequest, plan
from engine.terms import FamilyTerms, known_terms
from engine.types import GenerationRequest, QualityProfile, RenderSettings


@dataclass(frozen=True, kw_only=True)
class PlanTerms:
    """What decides the plan of a batch besides its requests.

    `varying` names the parameters that have more than one value in the whole batch, so that each
    chunk is planned as a part of it. `by_settings` says what families of each of the settings that
    occur share and skip: what is measured later changes no batch that is priced already.
    """

    varying: frozenset[str]
    by_settings: Mapping[RenderSettings, FamilyTerms] = field(default_factory=dict)

    def plan(self, requests: Iterable[GenerationRequest], *, drafted_to: int = 0) -> Plan:
        """The plan of these requests, whose first steps drafts may have computed."""
        return plan(
            requests,
            max_group=MAX_DRAFTED_GROUP if drafted_to else MAX_GROUP,
            varying=self.varying,
            terms_of=lambda settings: self.by_settings.get(settings) or known_terms(settings),
            drafted_to=drafted_to,
        )

    def of_profile(self, profile: QualityProfile) -> PlanTerms:
        """These terms without what holds for other profiles."""
        return PlanTerms(
            varying=self.varying,
            by_settings={
                settings: terms
                for settings, terms in self.by_settings.items()
                if settings.profile is profile
            },
        )

    def to_json(self) -> dict[str, Any]:
        """What the quote keeps; `from_json` reads it."""
        return {
            "varying": sorted(self.varying),
            "terms": [
                {"settings": settings.to_dict(), **terms.to_dict()}
                for settings, terms in self.by_settings.items()
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            varying=frozenset(data.get("varying", ())),
            by_settings={
                RenderSettings.from_dict(each["settings"]): FamilyTerms.from_dict(each)
                for each in data.get("terms", ())
            },
        )


def plan_as_quoted(
    details: Mapping[str, Any], requests: Sequence[GenerationRequest]
) -> Iterator[Plan]:
    """Plans of a quote's requests on its terms: those that go on from drafts by themselves."""
    # The terms of the price are the terms of the work.
    terms = PlanTerms.from_json(details.get("plan", {}))
    drafts = details.get("drafts")
    if drafts is None:
        yield terms.plan(requests)
        return
    anew = {str(ordinal) for ordinal in drafts["anew"]}
    for is_anew, step in ((False, drafts["step"]), (True, 0)):
        part = [each for each in requests if (each.request_id in anew) is is_anew]
        if part:
            yield terms.plan(part, drafted_to=step)


def charged_units(member: PlannedRequest) -> float:
    """Work units that a variant is charged at most.

    Where the guard checks it, it is delivered as its exact render, and costs no more than that.
    """
    return min(member.work_units, member.shared_units + member.guard_units)


class TermsBuilder:
    """Plans chunk by chunk and notes the terms of each of the settings that it meets."""

    def __init__(
        self,
        varying: Iterable[str],
        *,
        find_calibration: Callable[[RenderSettings], Calibration | None],
    ) -> None:
        self._varying = frozenset(varying)
        self._find_calibration = find_calibration
        self._by_settings: dict[RenderSettings, FamilyTerms] = {}

    @property
    def terms(self) -> PlanTerms:
        return PlanTerms(varying=self._varying, by_settings=self._by_settings)

    def plan(self, requests: Iterable[GenerationRequest], *, drafted_to: int = 0) -> Plan:
        """The plan of these requests, whose first steps drafts may have computed."""
        return plan(
            requests,
            max_group=MAX_DRAFTED_GROUP if drafted_to else MAX_GROUP,
            varying=self._varying,
            terms_of=self._known_terms,
            drafted_to=drafted_to,
        )

    def _known_terms(self, settings: RenderSettings) -> FamilyTerms:
        if settings not in self._by_settings:
            calibration = self._find_calibration(settings)
            self._by_settings[settings] = known_terms(settings, calibration=calibration)
        return self._by_settings[settings]


def find_varying(
    spec: BatchSpec, read_rows: Callable[[int], Iterable[SourceRow]] | None
) -> frozenset[str]:
    """The parameters with more than one value; rows are read until each column has shown two."""
    varying = {name for name, values in spec.typed_values.items() if len(set(values)) > 1}
    first: dict[str, str] = {}
    open_names = set(spec.columns)
    for row in read_rows(0) if read_rows and open_names else ():
        for name in [*open_names]:
            if row.values[name] != first.setdefault(name, row.values[name]):
                open_names.remove(name)
                varying.add(name)
        if not open_names:
            break
    return frozenset(varying)
