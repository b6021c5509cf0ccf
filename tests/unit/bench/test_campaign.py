"""The campaign benchmark: its families, what it refuses, and what its report says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.campaign import __main__ as campaign
from bench.campaign.choice import best_settings
from bench.campaign.families import BASES, PARAMETERS, SEEDS, Family
from bench.campaign.measure import _patches
from bench.campaign.plain import GUARD_INCLUDED, Rendered, Side
from bench.campaign.report import write_report
from bench.campaign.schedule import full_schedule
from engine.distances import drift
from engine.plan import affinity_key
from engine.registry import validate_request
from engine.types import QualityProfile


@pytest.mark.parametrize("size", [1, 4, 8, 24, 64])
def test_a_family_has_so_many_different_variants_of_one_affinity(size: int) -> None:
    requests = Family(varying="three", size=size, place=1, seed_place=2).requests(
        QualityProfile.FAITHFUL
    )
    assert len({request.prompt for request in requests}) == size
    assert len({affinity_key(request) for request in requests}) == 1
    assert {request.seed for request in requests} == {SEEDS[2]}


@pytest.mark.parametrize("varying", PARAMETERS)
@pytest.mark.parametrize("place", range(len(BASES)))
def test_variants_are_valid_and_name_what_the_judge_should_read(varying: str, place: int) -> None:
    family = Family(varying=varying, size=4, place=place)
    requests = family.requests(QualityProfile.EXACT)
    for request, wanted in zip(requests, family.wanted(), strict=True):
        validate_request(request)
        (slot,) = request.slots
        assert request.prompt[slice(*slot.span)] == slot.value
        assert list(wanted) == [varying]
    assert len({tuple(wanted.items()) for wanted in family.wanted()}) == 4


def test_a_synonym_is_read_as_its_value() -> None:
    wanted = Family(varying="backdrop", size=14).wanted()
    assert wanted[:7] == wanted[7:]


def test_speed_of_an_engine_with_failing_tests_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("def test_broken() -> None:\n    assert False\n")
    monkeypatch.setattr(campaign, "TESTS", (str(broken),))
    for _ in range(2):
        with pytest.raises(SystemExit, match="no speed is measured"):
            campaign.check_tests(tmp_path / "work")
    broken.write_text("def test_broken() -> None:\n    pass\n")
    campaign.check_tests(tmp_path / "work")


MAIN = "three-24-base0-seed0"


def _cells() -> dict[str, Any]:
    def speed(seconds: float, forwards: float) -> dict[str, Any]:
        stages = {"text": 0.1, "denoise": seconds, "decode": 0.2, "overhead": 0.1, "encode": 0.1}
        return {
            "seconds": seconds,
            "runs": [seconds],
            "forwards": forwards,
            "peak_mb": 1000.0,
            "stages": stages,
        }

    def variants(psnr: float, ssim: float) -> list[dict[str, Any]]:
        shared = {"psnr_db": psnr, "ssim": ssim, "right_exact": {"backdrop": True}}
        return [
            shared | {"right": {"backdrop": True}},
            shared | {"right": {"backdrop": False}, "drift": 0.8},
        ]

    return {
        f"speed|plain loop|{MAIN}": speed(4.0, 60),
        f"speed|plain batched|{MAIN}": speed(2.0, 60),
        f"speed|Quick peer|{MAIN}": speed(0.8, 20),
        f"speed|Good peer|{MAIN}": speed(1.2, 30),
        f"speed|Near peer|{MAIN}": speed(1.6, 40),
        f"speed|Adloom faithful|{MAIN}": speed(0.4, 25),
        f"speed|Adloom faithful{GUARD_INCLUDED}|{MAIN}": speed(0.6, 30),
        "speed|Adloom faithful|three-4-base0-seed0": speed(0.5, 27),
        "quality|plain batched|backdrop-2-base0-seed0": variants(80.0, 1.0),
        "quality|Quick peer|backdrop-2-base0-seed0": variants(25.0, 0.9),
        "quality|Good peer|backdrop-2-base0-seed0": variants(33.0, 0.97),
        "quality|Near peer|backdrop-2-base0-seed0": variants(35.6, 0.99),
        "quality|Adloom faithful|backdrop-2-base0-seed0": variants(36.0, 0.98),
        "sweep|Good peer|backdrop-2-base0-seed0": _tried(1.3, 33.0),
        f"speed|Odd peer|{MAIN}": {"refused": "ValueError: it knows no Wan"},
    }


def _tried(seconds: float, psnr_db: float, ssim: float = 0.9) -> dict[str, Any]:
    return {"seconds": seconds, "forwards": 30.0, "psnr_p50": psnr_db, "ssim_p50": ssim}


def test_the_report_compares_with_the_quickest_peer_of_equal_quality(tmp_path: Path) -> None:
    names = ["plain loop", "plain batched", "Quick peer", "Good peer", "Near peer", "Odd peer"]
    header = {
        "main": MAIN,
        "sides": [*names, "Adloom faithful", f"Adloom faithful{GUARD_INCLUDED}"],
        "facts": {"machine": "a machine"},
    }
    images = tmp_path / "images"
    text = write_report(_cells(), header=header, folder=tmp_path, images=images)
    promising, as_close = "(Good peer, 33.0 dB)", "(Near peer, 35.6 dB)"
    assert f"| Adloom faithful | 10.00x | 5.00x | 3.00x {promising} | 4.00x {as_close} |" in text
    guarded = f"Adloom faithful{GUARD_INCLUDED}"
    assert f"| {guarded} | 6.67x | 3.33x | 2.00x {promising} | 2.67x {as_close} |" in text
    assert "| Adloom faithful | 0.400 | 0.600 | 10.00x |" in text
    # Denoising takes 0.4 of 0.9 seconds.
    assert "0.400 (44%)" in text
    assert "| 1.8x |" in text
    assert "| **Good peer** | 1.300 |" in text
    assert "- Odd peer: ValueError: it knows no Wan" in text
    assert "50% (100%)" in text
    assert (tmp_path / "campaign.md").read_text() == text
    for chart in ("campaign-speed.svg", "campaign-sizes.svg"):
        assert "Adloom faithful" in "".join(ElementTree.parse(images / chart).getroot().itertext())


def _side(name: str, peer: str) -> Side:
    return Side(name=name, peer=peer, render=lambda _: Rendered(clips=[], forwards=0))


def test_of_each_peer_the_fastest_setting_that_is_close_enough_is_chosen() -> None:
    tried = {
        ("A mild", "A"): _tried(2.0, 38.0),
        ("A bold", "A"): _tried(1.5, 31.0),
        ("A wild", "A"): _tried(0.5, 29.0),
        ("B mild", "B"): _tried(1.0, 29.0, ssim=0.96),
        ("C mild", "C"): _tried(0.1, 20.0),
        ("D mild", "D"): {"refused": "ValueError"},
    }
    cells = {f"sweep|{name}|family": cell for (name, _), cell in tried.items()}
    sides = [_side(*each) for each in tried]
    assert best_settings(cells, sides, sweep="family") == ["B mild", "A bold"]


def test_the_full_schedule_judges_three_prompts_with_three_seeds() -> None:
    schedule = full_schedule()
    judged = schedule.quality_of(_side("Adloom faithful", ""))
    pairs = {(each.place, each.seed_place) for each in judged}
    assert len(pairs) == 9
    assert Counter(each.varying for each in judged) == dict.fromkeys((*PARAMETERS, "three"), 3)
    peers = schedule.quality_of(_side("a peer", ""))
    assert sorted(each.varying for each in peers) == sorted((*PARAMETERS, "three"))
    timed = dict(schedule.speed(_side("Adloom faithful", ""), runs=3))
    assert {each.size for each in timed} == {1, 4, 24, 64}
    assert timed[schedule.main] == 3
    assert list(schedule.speed(_side("a peer", ""), runs=3)) == [(schedule.main, 3)]


def test_drift_of_clips_that_move_as_the_exact_ones_is_one() -> None:
    noise = np.random.default_rng(0)
    clips = noise.integers(0, 256, (2, 5, 64, 64, 3), dtype=np.uint8)
    change = _patches(clips[1]) - _patches(clips[0])
    assert change.shape == (1, 3, 5, 4, 4)
    assert drift(change, change) == pytest.approx(1.0)
