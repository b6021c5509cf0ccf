"""Calibration: probes of a family, and the latest forks that keep the promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from engine.calibrating import Calibrator, Probe, Sharing, find_probes, together
from engine.calibration import keep_calibration
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import InvalidRequest
from engine.families import ParameterValues, make_family, read_values
from engine.profiles import Promise
from engine.registry import weights_fingerprint
from engine.types import GenerationRequest, QualityProfile, StemConditioning
from engine.units import clip_units
from tests.unit.engine.families import variant

STEPS = 4


def _family(**changes: Any) -> list[GenerationRequest]:
    return [
        variant(backdrop, place=place, steps=STEPS, **changes)
        for backdrop, place in product(("snow", "a beach", "a roof"), ("Paris", "Rio"))
    ]


@pytest.fixture(scope="module")
def engine(model_dir: Path) -> Engine:
    return Engine(EngineConfig(model_dir=model_dir, device="cpu", guard_every=0))


@pytest.fixture
def promise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_promise(**bounds: float) -> None:
        promises = dict.fromkeys(QualityProfile, Promise(**bounds))
        monkeypatch.setattr("engine.calibrating.PROMISES", promises)

    return set_promise


def test_each_parameter_is_probed_alone_and_then_all_together() -> None:
    family = _family()
    backdrop, place = find_probes(family)
    assert [r.prompt for r in backdrop.requests] == [
        "a red sneaker on snow, for runners, Paris",
        "a red sneaker on a beach, for runners, Paris",
        "a red sneaker on a roof, for runners, Paris",
    ]
    assert (backdrop.names, place.names) == ({"backdrop"}, {"place"})
    joint = together([backdrop, place])
    assert [r.prompt for r in joint.requests] == [
        "a red sneaker on snow, for runners, Paris",
        "a red sneaker on a beach, for runners, Rio",
        "a red sneaker on a roof, for runners, Rio",
    ]
    for request in (*backdrop.requests, *joint.requests):
        for slot in request.slots:
            assert request.prompt[slice(*slot.span)] == slot.value


class _Scripted(Calibrator):
    """Keeps promises up to the given forks, so the search can be watched without renders."""

    def __init__(self, latest: Mapping[tuple[str, str], int], joint: int) -> None:
        self._latest = latest
        self._joint = joint
        self.tried: list[dict[str, int]] = []
        self._runner = type("Runner", (), {"config": EngineConfig()})()  # type: ignore[assignment]
        self._forwards = 0.0

    def _is_kept(self, probe: Probe, sharing: Sharing) -> bool:
        self.tried.append(dict(sharing.forks))
        if len(sharing.forks) > 1:
            return max(sharing.forks.values()) <= self._joint
        ((kind, step),) = sharing.forks.items()
        return step <= self._latest[kind, sharing.stems[kind]]


@pytest.mark.parametrize("latest", range(30))
def test_the_latest_fork_is_found_by_bisection(latest: int) -> None:
    stems = {("backdrop", stem): latest for stem in StemConditioning}
    calibrator = _Scripted(stems, 0)
    probe = Probe(requests=[variant("snow", steps=30)], names=frozenset({"backdrop"}))
    found = calibrator._latest_fork("backdrop", [probe])
    assert found.forks == {"backdrop": latest}
    # Other stems that are no better take one render each.
    assert len(calibrator.tried) <= 5 + 2


def test_the_best_stem_wins() -> None:
    latest = {("backdrop", stem): 4 for stem in StemConditioning}
    latest["backdrop", StemConditioning.MEAN_EMBEDDING] = 9
    probe = Probe(requests=[variant("snow", steps=30)], names=frozenset({"backdrop"}))
    found = _Scripted(latest, 0)._latest_fork("backdrop", [probe])
    assert found.forks == {"backdrop": 9}
    assert found.stems == {"backdrop": StemConditioning.MEAN_EMBEDDING}


def test_forks_that_break_the_promise_together_come_earlier() -> None:
    sharing = Sharing(forks={"backdrop": 12, "geography": 6}, stems={})
    joint = Probe(requests=[], names=frozenset())
    assert _Scripted({}, 7)._fit(joint, sharing).forks == {"backdrop": 6, "geography": 3}


def test_a_promise_that_asks_nothing_lets_everything_be_shared(
    engine: Engine, promise: Callable[..., None], model_dir: Path
) -> None:
    promise()
    (calibration,) = engine.calibrate(_family())
    assert calibration.fork_steps == {"backdrop": STEPS - 1, "geography": STEPS - 1}
    settings = _family()[0].settings
    fingerprint = weights_fingerprint("adloom-tiny", model_dir=model_dir)
    assert calibration.fits(settings, weights_fingerprint=fingerprint)
    # Four prompts exactly, and more than that in trees.
    assert calibration.probe_units > 4 * clip_units(settings)
    assert calibration.step_seconds > 0


def test_a_promise_of_equality_lets_nothing_be_shared(
    engine: Engine, promise: Callable[..., None]
) -> None:
    promise(min_psnr_db=1e9)
    (calibration,) = engine.calibrate(_family())
    assert calibration.fork_steps == {"backdrop": 0, "geography": 0}
    assert calibration.step_cache is None
    assert calibration.has_forks


def test_profiles_are_measured_by_the_same_exact_renders(
    engine: Engine, promise: Callable[..., None]
) -> None:
    promise(min_psnr_db=1e9)
    profiles = (QualityProfile.FAST, QualityProfile.FAST, QualityProfile.FAITHFUL)
    first, second, third = engine.calibrate(_family(), profiles=profiles)
    assert (first.profile, second.profile, third.profile) == profiles
    # The control, two backdrops, a place, and two variants in which both are other ones.
    exact_units = 6 * clip_units(_family()[0].settings)
    assert first.probe_units >= second.probe_units + exact_units


def test_a_calibrated_engine_forks_where_it_was_measured(
    engine: Engine, promise: Callable[..., None], model_dir: Path, tmp_path: Path
) -> None:
    promise()
    (measured,) = engine.calibrate(_family())
    known = replace(
        measured,
        fork_steps={"backdrop": 1, "geography": 3},
        stems={"backdrop": StemConditioning.CONTROL, "geography": StemConditioning.MEAN_EMBEDDING},
        step_cache=None,
    )
    config = EngineConfig(model_dir=model_dir, device="cpu", guard_every=0)
    kept = tmp_path / "tiny"
    kept.symlink_to(model_dir / "tiny")
    keep_calibration(kept, known)
    engines = [Engine(config, calibration=each) for each in (known, lambda _: known)]
    for engine in (*engines, Engine(replace(config, model_dir=tmp_path))):
        outcomes = {o.request_id: o for o in engine.generate(_family())}
        edges = outcomes["a beach/runners/Rio"].provenance["edges"]  # type: ignore[union-attr]
        assert [(edge["start"], edge["stop"]) for edge in edges] == [(0, 1), (1, 3), (3, STEPS)]
        # The control's backdrop, and a mean over the places.
        assert edges[0]["texts"] == [
            "a red sneaker on a beach, for runners, Paris",
            "a red sneaker on a beach, for runners, Rio",
        ]
    other = replace(known, weights_fingerprint="other")
    (outcome, *_) = Engine(config, calibration=other).generate(_family())
    assert len(outcome.provenance["edges"]) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        (_family(profile=QualityProfile.EXACT), "exact shares nothing"),
        (_family()[:1], "two values"),
        ([_family()[0], replace(_family()[1], seed=8)], "one family"),
    ],
    ids=["exact", "one value", "two families"],
)
def test_what_cannot_be_calibrated_is_said(
    engine: Engine, requests: list[GenerationRequest], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        list(engine.calibrate(requests))


def test_a_family_is_made_of_a_prompt_with_gaps() -> None:
    values = read_values(["backdrop=snow|a beach", "city:geography=Paris | Rio"])
    assert values["city"] == ParameterValues(kind="geography", values=("Paris", "Rio"))
    family = make_family("on {backdrop} in {city}", values, settings=_family()[0].settings)
    assert [request.prompt for request in family] == [
        "on snow in Paris",
        "on snow in Rio",
        "on a beach in Paris",
        "on a beach in Rio",
    ]
    for request in family:
        assert [request.prompt[slice(*slot.span)] for slot in request.slots] == [
            slot.value for slot in request.slots
        ]
        assert [slot.kind for slot in request.slots] == ["backdrop", "geography"]


@pytest.mark.parametrize(
    ("template", "texts", "message"),
    [
        ("on {backdrop}", [], "'backdrop', which has no values"),
        ("on snow", ["backdrop=a|b"], "no gap {backdrop}"),
        ("on {backdrop}", ["backdrop"], "is not like"),
        ("on {backdrop}", ["backdrop=|"], "is not like"),
    ],
)
def test_a_family_that_cannot_be_made_is_said(
    template: str, texts: list[str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make_family(template, read_values(texts), settings=_family()[0].settings)
