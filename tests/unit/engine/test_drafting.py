"""Drafts: the first steps of the finished render, shown as a prediction, and gone on from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.engine import Engine
from engine.errors import InvalidRequest
from engine.plan import plan
from engine.registry import default_draft_step, validate
from engine.suspending import StateFile, Suspension
from engine.types import (
    GenerationRequest,
    GenerationResult,
    QualityProfile,
    RenderSettings,
    StepCacheMethod,
    StepCachePolicy,
)
from tests.unit.engine.conftest import small_settings
from tests.unit.engine.families import forked, variant

STEPS = 6
DRAFT_STEP = 3
MakeEngine = Callable[..., Engine]
EXTRAPOLATION = StepCachePolicy(
    method=StepCacheMethod.EXTRAPOLATION, interval=2, full_steps=0.3, hold_guidance_from=0.3
)


def as_draft(request: GenerationRequest) -> GenerationRequest:
    return replace(request, settings=replace(request.settings, draft_step=DRAFT_STEP))


def family(profile: QualityProfile = QualityProfile.CONSISTENT) -> list[GenerationRequest]:
    """Two backdrops that fork at step 1, two places each that fork at step 2."""
    return [
        forked(variant(backdrop, place=place, steps=STEPS, profile=profile), backdrop=1, place=2)
        for backdrop in ("snow", "a beach")
        for place in ("Paris", "Rio")
    ]


def exact(backdrop: str = "snow") -> GenerationRequest:
    return variant(backdrop, steps=STEPS, profile=QualityProfile.EXACT)


def render(
    engine: Engine, requests: Sequence[GenerationRequest], **options: Any
) -> dict[str, GenerationResult]:
    outcomes = list(engine.generate(requests, **options))
    assert all(isinstance(each, GenerationResult) for each in outcomes), outcomes
    return {each.request_id: each for each in outcomes}  # type: ignore[misc]


def finish(
    engine: Engine,
    requests: Sequence[GenerationRequest],
    drafts: dict[str, GenerationResult],
    folder: Path,
) -> dict[str, GenerationResult]:
    """Finish drafts from their files."""
    files = []
    for place, draft in enumerate(drafts.values()):
        assert draft.state is not None
        draft.state.save(folder / f"{place}.state")
        files.append(StateFile.load(folder / f"{place}.state"))
    return render(engine, requests, suspension=Suspension(resumed=files))


def test_an_exact_render_finished_from_its_draft_is_equal_bit_for_bit(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    (whole,) = render(make_engine(), [exact()]).values()
    drafts = render(make_engine(), [as_draft(exact())])
    (draft,) = drafts.values()
    (done,) = finish(make_engine(), [exact()], drafts, tmp_path).values()
    np.testing.assert_array_equal(done.frames, whole.frames)
    assert not np.array_equal(draft.frames, whole.frames)
    assert done.provenance["rendered_as"] == "exact"
    assert done.provenance["resumed"] == {"from_step": DRAFT_STEP}
    assert draft.provenance["draft"] == {"step": DRAFT_STEP, "of": STEPS}
    # No step is computed or counted twice; each of the two has its own decode.
    assert draft.forwards_computed + done.forwards_computed == whole.forwards_computed
    assert done.provenance["forwards"]["saved"] == {"draft": draft.forwards_computed}


def test_variants_finished_from_drafts_of_a_tree_equal_those_of_the_uncut_tree(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine(step_cache=EXTRAPOLATION, batch_size=1)
    whole = render(engine, family())
    drafts = render(engine, [as_draft(each) for each in family()])
    done = finish(engine, family(), drafts, tmp_path)
    for name, result in done.items():
        np.testing.assert_array_equal(result.frames, whole[name].frames)
        both = drafts[name].forwards_computed + result.forwards_computed
        assert both == pytest.approx(whole[name].forwards_computed)
        assert result.provenance["resumed"] == {"from_step": DRAFT_STEP}


def test_a_part_of_the_drafts_is_finished_without_the_others(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine(step_cache=EXTRAPOLATION, batch_size=1)
    # Nobody follows a control, which may not be among the chosen ones.
    variants = family(QualityProfile.FAITHFUL)
    whole = render(engine, variants)
    drafts = render(engine, [as_draft(each) for each in variants])
    chosen = [variants[0], variants[3]]
    done = finish(engine, chosen, {each.request_id: drafts[each.request_id] for each in chosen},
                  tmp_path)  # fmt: skip
    for name, result in done.items():
        np.testing.assert_array_equal(result.frames, whole[name].frames)


def test_a_draft_shows_what_the_finished_render_will_be(make_engine: MakeEngine) -> None:
    """The prediction is nearer to the end than the noisy latents that the state holds."""
    engine = make_engine()
    request = exact()
    (whole,) = render(engine, [request]).values()
    (early,) = render(
        engine, [replace(request, settings=replace(request.settings, draft_step=2))]
    ).values()
    (late,) = render(
        engine, [replace(request, settings=replace(request.settings, draft_step=5))]
    ).values()
    near, far = (
        float(np.abs(each.frames.astype(int) - whole.frames).mean()) for each in (late, early)
    )
    assert near < far < 3.0


def test_a_state_of_another_seed_or_other_weights_is_of_no_use(
    make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = render(make_engine(), [as_draft(exact())])
    other = replace(exact(), seed=8)
    (result,) = finish(make_engine(), [other], drafts, tmp_path).values()
    assert result.provenance["resumed"]["from_step"] == 0
    assert "another one now" in result.provenance["resumed"]["because"]
    monkeypatch.setattr("engine.engine.ENGINE_VERSION", "next")
    (result,) = finish(make_engine(), [exact()], drafts, tmp_path).values()
    assert result.provenance["resumed"] == {
        "from_step": 0,
        "because": "engine_version was 1, and is next",
    }


@pytest.mark.parametrize("profile", [QualityProfile.EXACT, QualityProfile.CONSISTENT])
def test_draft_and_rest_are_priced_as_they_are_counted(
    make_engine: MakeEngine, tmp_path: Path, profile: QualityProfile
) -> None:
    engine = make_engine()
    requests = [exact(), exact("a beach")] if profile is QualityProfile.EXACT else family()
    drafted = plan([as_draft(each) for each in requests])
    rest = plan(requests, drafted_to=DRAFT_STEP)
    drafts = render(engine, [as_draft(each) for each in requests])
    done = finish(engine, requests, drafts, tmp_path)
    for planned, results in ((drafted, drafts), (rest, done)):
        assert planned.shared_units == pytest.approx(sum(r.work_units for r in results.values()))
    assert drafted.shared_units + rest.shared_units > plan(requests).shared_units, "two decodes"


def test_a_draft_is_not_checked_by_the_guard(make_engine: MakeEngine) -> None:
    assert plan([as_draft(each) for each in family()]).guard_units == 0
    drafts = render(make_engine(guard_every=1), [as_draft(each) for each in family()])
    assert all(not each.guard_units for each in drafts.values())
    assert plan(family()).guard_units > 0


@pytest.mark.parametrize(
    ("steps", "step", "message"),
    [(6, 1, "draft_step is 1; choose 2 to 5"), (6, 6, "choose 2 to 5"), (2, 2, "has no draft")],
)
def test_a_step_that_no_draft_can_end_at_is_refused(steps: int, step: int, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        validate(small_settings(num_inference_steps=steps, draft_step=step))


def test_settings_of_a_finished_render_know_nothing_of_drafts() -> None:
    settings = small_settings(num_inference_steps=30)
    draft = replace(settings, draft_step=default_draft_step(settings))
    assert draft.draft_step == 15
    assert "draft_step" not in settings.to_dict()
    assert draft.finished == settings
    assert RenderSettings.from_dict(draft.to_dict()) == draft
