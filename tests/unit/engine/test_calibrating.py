"""Calibration: probes of a family, and the latest forks that keep the promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from engine.calibrating import Calibrator, Sharing
from engine.calibration import keep_calibration
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import InvalidRequest
from engine.families import ParameterValues, make_family, read_seeds, read_values
from engine.probing import Probe, find_probes, make_probes, together
from engine.profiles import Distance, Promise
from engine.registry import weights_fingerprint
from engine.types import GenerationRequest, QualityProfile, StemConditioning
from engine.units import clip_units
from engine.worth import least_worthwhile_fork
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


def test_families_begin_with_other_values_and_are_told_apart() -> None:
    families = [
        replace(request, seed=seed, prompt=request.prompt.replace("red", colour))
        for seed, colour in product((1, 2), ("red", "tan"))
        for request in _family()
    ]
    probes = make_probes(families)
    assert (probes.num_prompts, probes.num_seeds) == (2, 2)
    controls = [probe.requests[0].slot_values() for probe in probes.by_kind["backdrop"]]
    assert [(each["backdrop"], each["place"]) for each in controls] == [
        ("snow", "Paris"),
        ("a beach", "Rio"),
        ("a roof", "Paris"),
        ("snow", "Rio"),
    ]
    # Two other backdrops, another place, and two in which both are other ones, of each family.
    assert [len(probe.requests) for probe in probes.whole] == [6] * 4
    assert probes.num_variants == 20
    # One family alone shows more of its values.
    assert [len(probe.requests) for probe in make_probes(_family()).by_kind["backdrop"]] == [3]


class _Scripted(Calibrator):
    """Keeps promises up to the given forks, so the search can be watched without renders."""

    def __init__(self, latest: Mapping[tuple[str, str], int], joint: int) -> None:
        self._latest = latest
        self._joint = joint
        self.tried: list[dict[str, int]] = []
        self._runner = type("Runner", (), {"config": EngineConfig()})()  # type: ignore[assignment]

    def _distances(self, probe: Probe, sharing: Sharing) -> Sequence[Distance]:
        self.tried.append(dict(sharing.forks))
        if len(sharing.forks) > 1:
            is_kept = max(sharing.forks.values()) <= self._joint
        else:
            ((kind, step),) = sharing.forks.items()
            is_kept = step <= self._latest[kind, sharing.stems[kind]]
        return [Distance(psnr_db=40.0, ssim=1.0)] if is_kept else []


@pytest.mark.parametrize("latest", range(30))
def test_the_latest_fork_is_found_by_bisection(latest: int) -> None:
    stems = {("backdrop", stem): latest for stem in StemConditioning}
    calibrator = _Scripted(stems, 0)
    probe = Probe(requests=[variant("snow", steps=30)], names=frozenset({"backdrop"}))
    found = calibrator._latest_fork("backdrop", [probe], None)
    least = least_worthwhile_fork(probe.requests[0].settings, None)
    assert least == 5
    assert found.forks == {"backdrop": latest if latest >= least else 0}
    assert all(forks["backdrop"] >= least for forks in calibrator.tried)
    # Up by doubling and down by halving; other stems that are no better take one render each.
    assert len(calibrator.tried) <= 2 * latest.bit_length() + 1 + 2


def test_one_broken_family_is_enough_and_is_asked_first_the_next_time() -> None:
    asked: list[int] = []

    class OneBreaks(_Scripted):
        def _distances(self, probe: Probe, sharing: Sharing) -> Sequence[Distance]:
            asked.append(probe.requests[0].seed)
            return [] if asked[-1] == 3 else super()._distances(probe, sharing)

    probes = [
        Probe(requests=[variant("snow", steps=30, seed=seed)], names=frozenset({"backdrop"}))
        for seed in (1, 2, 3, 4)
    ]
    stems = {("backdrop", stem): 30 for stem in StemConditioning}
    found = OneBreaks(stems, 0)._latest_fork("backdrop", probes, None)
    assert found.forks == {"backdrop": 0}
    assert asked == [1, 2, 3, 3, 3]


def test_the_best_stem_wins() -> None:
    latest = {("backdrop", stem): 7 for stem in StemConditioning}
    latest["backdrop", StemConditioning.MEAN_EMBEDDING] = 9
    probe = Probe(requests=[variant("snow", steps=30)], names=frozenset({"backdrop"}))
    found = _Scripted(latest, 0)._latest_fork("backdrop", [probe], None)
    assert found.forks == {"backdrop": 9}
    assert found.stems == {"backdrop": StemConditioning.MEAN_EMBEDDING}


def test_forks_that_break_the_promise_together_come_earlier() -> None:
    sharing = Sharing(forks={"backdrop": 16, "geography": 12, "audience": 6}, stems={})
    joint = Probe(requests=[variant("snow", steps=30)], names=frozenset())
    calibrator = _Scripted({}, 9)
    fitted, _ = calibrator._fit([joint], sharing)
    # A fork before the fifth step would not pay for its checks.
    assert fitted.forks == {"backdrop": 9, "geography": 6, "audience": 0}
    assert calibrator.tried[1] == {"backdrop": 12, "geography": 9, "audience": 0}


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
    assert (calibration.num_prompts, calibration.num_seeds) == (1, 1)
    assert calibration.num_variants == 5
    assert calibration.closeness["psnr_p5"] <= calibration.closeness["psnr_p50"]


def test_what_one_of_several_seeds_breaks_is_not_kept(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: dict[int, float] = {}
    for seed in (7, 8):
        promises = dict.fromkeys(QualityProfile, Promise())
        monkeypatch.setattr("engine.calibrating.PROMISES", promises)
        family = [replace(request, seed=seed) for request in _family()]
        (found,) = engine.calibrate(family)
        alone[seed] = found.closeness["projection_min"]
    # A bound that the better seed keeps with everything shared, and the worse one does not.
    promise = Promise(min_projection=sum(alone.values()) / 2)
    promises = dict.fromkeys(QualityProfile, promise)
    monkeypatch.setattr("engine.calibrating.PROMISES", promises)
    both = [replace(request, seed=seed) for seed in (7, 8) for request in _family()]
    (calibration,) = engine.calibrate(both)
    assert (calibration.num_prompts, calibration.num_seeds) == (1, 2)
    assert calibration.closeness["projection_min"] >= sum(alone.values()) / 2
    assert sum(calibration.fork_steps.values()) < 2 * (STEPS - 1)


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
        ([*_family(), *_family(profile=QualityProfile.FAST)], "equal settings"),
    ],
    ids=["exact", "one value", "two settings"],
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


def test_seeds_are_read() -> None:
    assert read_seeds("1, 2,2,3") == (1, 2, 3)
    for text in ("", "1;2", "-1", "one"):
        with pytest.raises(InvalidRequest, match="is not like"):
            read_seeds(text)


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
