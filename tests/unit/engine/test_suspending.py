"""A run that is stopped between two steps goes on in another engine as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine.engine
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import InvalidRequest
from engine.suspending import StateFile, Suspension
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    QualityProfile,
    StepCacheMethod,
    StepCachePolicy,
)
from tests.unit.engine.families import forked, variant

STEPS = 6
EXTRAPOLATION = StepCachePolicy(
    method=StepCacheMethod.EXTRAPOLATION, interval=3, full_steps=0.3, hold_guidance_from=0.6
)
Results = dict[str, GenerationResult]


@pytest.fixture(scope="module")
def make_engine(model_dir: Path) -> Callable[..., Engine]:
    def make(**changes: Any) -> Engine:
        known: dict[str, Any] = {
            "model_dir": model_dir,
            "device": "cpu",
            "cache_bytes": 0,
            "guard_every": 0,
            "batch_size": 4,
            "step_cache": EXTRAPOLATION,
        }
        return Engine(EngineConfig(**(known | changes)))

    return make


def _family() -> list[GenerationRequest]:
    """Two backdrops that fork at step 1, two places each that fork at step 3.

    Nobody follows a control, which a later run may not have.
    """
    profile = QualityProfile.FAITHFUL
    return [
        forked(variant(backdrop, place=place, steps=STEPS, profile=profile), backdrop=1, place=3)
        for backdrop in ("snow", "a beach")
        for place in ("Paris", "Rio")
    ]


def _exact() -> list[GenerationRequest]:
    return [variant("snow", steps=STEPS, profile=QualityProfile.EXACT)]


def _until(
    engine: Engine, requests: Sequence[GenerationRequest], *, reports: int, **options: Any
) -> tuple[Results, StateFile | None]:
    """What was finished when the run stopped after so many reports of steps, and what it left."""
    heard = 0

    def hear(_: object) -> None:
        nonlocal heard
        heard += 1

    suspension = Suspension(lambda: heard >= reports, **options)
    results, failures = _split(engine, requests, on_progress=hear, suspension=suspension)
    assert {failure.code for failure in failures.values()} <= {"suspended"}
    return results, suspension.left_open


def _split(
    engine: Engine, requests: Sequence[GenerationRequest], **options: Any
) -> tuple[Results, dict[str, GenerationFailure]]:
    outcomes = list(engine.generate(requests, **options))
    return (
        {o.request_id: o for o in outcomes if isinstance(o, GenerationResult)},
        {o.request_id: o for o in outcomes if isinstance(o, GenerationFailure)},
    )


def _resume(
    engine: Engine, requests: Sequence[GenerationRequest], file: StateFile, **options: Any
) -> Results:
    results, failures = _split(engine, requests, suspension=Suspension(resumed=[file], **options))
    assert not failures
    return results


@pytest.mark.parametrize("reports", [1, 3, 5])
def test_an_exact_render_goes_on_in_another_engine_bit_for_bit(
    make_engine: Callable[..., Engine], tmp_path: Path, reports: int
) -> None:
    whole, _ = _split(make_engine(), _exact())
    done, left = _until(make_engine(), _exact(), reports=reports)
    assert not done
    assert left is not None
    left.save(tmp_path / "state")
    results = _resume(make_engine(), _exact(), StateFile.load(tmp_path / "state"))
    (name, result), *_ = results.items()
    np.testing.assert_array_equal(result.frames, whole[name].frames)
    assert result.provenance["resumed"] == {"from_step": reports}
    assert result.provenance["rendered_as"] == "exact"
    assert result.forwards_computed == whole[name].forwards_computed
    assert result.work_units == pytest.approx(whole[name].work_units)


# Of 4 renders with steps of their own and shared ones: in a shared edge, at its end, in the
# second level, in the leaves.
@pytest.mark.parametrize("reports", [4, 8, 14, 18])
def test_a_tree_with_a_step_cache_goes_on_as_if_it_had_not_been_stopped(
    make_engine: Callable[..., Engine], tmp_path: Path, reports: int
) -> None:
    whole, _ = _split(make_engine(), _family())
    done, left = _until(make_engine(), _family(), reports=reports)
    assert left is not None
    left.save(tmp_path / "state")
    rest = [each for each in _family() if each.request_id not in done]
    results = done | _resume(make_engine(), rest, StateFile.load(tmp_path / "state"))
    assert results.keys() == whole.keys()
    for name, result in results.items():
        np.testing.assert_array_equal(result.frames, whole[name].frames)
        assert result.work_units == pytest.approx(whole[name].work_units)
        assert result.forwards_computed == pytest.approx(whole[name].forwards_computed)


def test_what_is_stopped_twice_keeps_what_the_first_run_left(
    make_engine: Callable[..., Engine],
) -> None:
    whole, _ = _split(make_engine(batch_size=1), _family())
    done, left = _until(make_engine(batch_size=1), _family(), reports=10)
    assert left is not None
    rest = [each for each in _family() if each.request_id not in done]
    more, left = _until(make_engine(batch_size=1), rest, reports=1, resumed=[left])
    assert left is not None
    rest = [each for each in rest if each.request_id not in more]
    results = done | more | _resume(make_engine(batch_size=1), rest, left)
    for name, result in whole.items():
        np.testing.assert_array_equal(results[name].frames, result.frames)
    units = [sum(each.work_units for each in run.values()) for run in (results, whole)]
    assert units[0] == pytest.approx(units[1])


@pytest.mark.parametrize("reports", [24, 26])
def test_a_guarded_group_keeps_its_renders_and_its_exact_ones(
    make_engine: Callable[..., Engine], reports: int
) -> None:
    """The first four renders take 24 reports; the exact renders of the check say nothing more."""
    engine = make_engine(guard_every=1, step_cache=None)
    whole, _ = _split(engine, _family())
    polls = 0

    def late() -> bool:
        nonlocal polls
        polls += 1
        return polls > reports

    suspension = Suspension(late)
    done, failures = _split(
        make_engine(guard_every=1, step_cache=None), _family(), suspension=suspension
    )
    assert failures
    assert suspension.left_open is not None
    rest = [each for each in _family() if each.request_id not in done]
    results = done | _resume(
        make_engine(guard_every=1, step_cache=None), rest, suspension.left_open
    )
    for name, result in whole.items():
        np.testing.assert_array_equal(results[name].frames, result.frames)


def test_a_state_of_another_engine_version_is_not_taken_and_the_result_says_so(
    make_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = _split(make_engine(), _exact())
    _, left = _until(make_engine(), _exact(), reports=2)
    assert left is not None
    monkeypatch.setattr(engine.engine, "ENGINE_VERSION", "later")
    (name, result), *_ = _resume(make_engine(), _exact(), left).items()
    assert result.provenance["resumed"] == {
        "from_step": 0,
        "because": "engine_version was 1, and is later",
    }
    np.testing.assert_array_equal(result.frames, whole[name].frames)
    assert result.forwards_computed == whole[name].forwards_computed


def test_a_state_of_another_prompt_or_seed_is_not_taken(
    make_engine: Callable[..., Engine],
) -> None:
    _, left = _until(make_engine(), _exact(), reports=2)
    assert left is not None
    other = replace(_exact()[0], seed=8)
    (_, result), *_ = _resume(make_engine(), [other], left).items()
    assert result.provenance["resumed"]["from_step"] == 0
    (_, alone), *_ = _split(make_engine(), [other])[0].items()
    np.testing.assert_array_equal(result.frames, alone.frames)


def test_a_step_cache_that_cannot_pause_begins_its_edge_anew(
    make_engine: Callable[..., Engine],
) -> None:
    cache = StepCachePolicy(method=StepCacheMethod.FIRST_BLOCK, threshold=0.2)
    whole, _ = _split(make_engine(step_cache=cache), _family())
    _, left = _until(make_engine(step_cache=cache), _family(), reports=14)
    assert left is not None
    assert {edge.state.step for edge in left.edges.values() if edge.state} == {3}
    results = _resume(make_engine(step_cache=cache), _family(), left)
    for name, result in whole.items():
        np.testing.assert_array_equal(results[name].frames, result.frames)


def test_a_run_that_has_ended_leaves_nothing_open(make_engine: Callable[..., Engine]) -> None:
    suspension = Suspension()
    list(make_engine().generate(_exact(), suspension=suspension))
    assert suspension.left_open is None


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"not a state")
    with pytest.raises(InvalidRequest, match="no whole denoising state"):
        StateFile.load(tmp_path / "state")
