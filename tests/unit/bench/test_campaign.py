"""The campaign benchmark: its families, what it refuses, and what its report says."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.campaign import __main__ as campaign
from bench.campaign.families import BASES, PARAMETERS, SEEDS, Family
from bench.campaign.measure import _patches
from bench.campaign.report import write_report
from engine.distances import drift
from engine.plan import affinity_key
from engine.registry import validate_request
from engine.types import QualityProfile


@pytest.mark.parametrize("size", [1, 4, 8, 24, 64])
def test_a_family_has_so_many_different_variants_of_one_affinity(size: int) -> None:
    requests = Family(varying="three", size=size, place=1).requests(QualityProfile.FAITHFUL)
    assert len({request.prompt for request in requests}) == size
    assert len({affinity_key(request) for request in requests}) == 1
    assert {request.seed for request in requests} == {SEEDS[1]}


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


def _cells() -> dict[str, Any]:
    def speed(seconds: float, forwards: float) -> dict[str, Any]:
        return {"seconds": seconds, "runs": [seconds], "forwards": forwards, "peak_mb": 1000.0}

    def variants(psnr: float) -> list[dict[str, Any]]:
        shared = {"psnr_db": psnr, "ssim": 0.97, "right_exact": {"backdrop": True}}
        return [
            shared | {"right": {"backdrop": True}},
            shared | {"right": {"backdrop": False}, "drift": 0.8},
        ]

    return {
        "speed|plain loop|three-24-base0": speed(4.0, 60),
        "speed|plain batched|three-24-base0": speed(2.0, 60),
        "speed|Quick peer|three-24-base0": speed(0.8, 20),
        "speed|Good peer|three-24-base0": speed(1.2, 30),
        "speed|Adloom faithful|three-24-base0": speed(0.4, 25),
        "speed|Adloom faithful|three-4-base0": speed(0.5, 27),
        "quality|Quick peer|backdrop-2-base0": variants(25.0),
        "quality|Good peer|backdrop-2-base0": variants(33.0),
        "quality|Adloom faithful|backdrop-2-base0": variants(36.0),
        "speed|Odd peer|three-24-base0": {"refused": "ValueError: it knows no Wan"},
    }


def test_the_report_compares_with_the_quickest_peer_of_equal_quality(tmp_path: Path) -> None:
    names = ["plain loop", "plain batched", "Quick peer", "Good peer", "Odd peer"]
    header = {
        "main": "three-24-base0",
        "sides": [*names, "Adloom faithful"],
        "facts": {"machine": "a machine"},
    }
    text = write_report(_cells(), header=header, folder=tmp_path)
    assert "| Adloom faithful | 10.00x | 5.00x | 3.00x |" in text
    assert "Good peer (33.0 dB)" in text
    assert "- Odd peer: ValueError: it knows no Wan" in text
    assert "50% (100%)" in text
    assert (tmp_path / "campaign.md").read_text() == text
    for chart in ("campaign-speed.svg", "campaign-sizes.svg"):
        assert "Adloom faithful" in "".join(
            ElementTree.parse(tmp_path / chart).getroot().itertext()
        )


def test_drift_of_clips_that_move_as_the_exact_ones_is_one() -> None:
    noise = np.random.default_rng(0)
    clips = noise.integers(0, 256, (2, 5, 64, 64, 3), dtype=np.uint8)
    change = _patches(clips[1]) - _patches(clips[0])
    assert change.shape == (1, 3, 5, 4, 4)
    assert drift(change, change) == pytest.approx(1.0)
