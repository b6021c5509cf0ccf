"""Measurements of the models: saved by workers, read where batches are priced and planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.models import CalibrationRecord
from engine.calibration import Calibration, read_calibrations
from engine.registry import checkpoint_folder, weights_fingerprint
from engine.types import RenderSettings

# Medians of so many renders are settled: fewer samples do not replace them.
SETTLED_SAMPLES: Final = 8
_KEY: Final = (
    "weights_fingerprint",
    "device_kind",
    "width",
    "height",
    "num_frames",
    "solver",
    "num_inference_steps",
    "guidance_scale",
    "profile",
)


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """All calibrations of one model's weights, the latest first.

    `shipped` came with the weights: their fork steps hold anywhere, their seconds only elsewhere.
    """

    calibrations: Sequence[Calibration] = ()
    shipped: Sequence[Calibration] = ()

    def find(self, settings: RenderSettings) -> Calibration | None:
        """The calibration whose fork steps hold for these settings: it was measured with them."""
        known = (*self.calibrations, *self.shipped)
        return next((each for each in known if each.has_forks and each.fits(settings)), None)

    def find_pace(self, settings: RenderSettings) -> Calibration | None:
        """The calibration that tells best how long these settings take.

        Of another profile, then of another size: seconds follow from the work units.
        """
        return max(
            (each for each in self.calibrations if each.clip_seconds > 0),
            key=lambda each: (
                (each.width, each.height, each.num_frames)
                == (settings.width, settings.height, settings.num_frames),
                each.profile is settings.profile,
            ),
            default=None,
        )


NOTHING_MEASURED: Final = Measurements()


def load(session: Session, weights_fingerprint: str) -> Measurements:
    """What is known of these weights."""
    rows = session.scalars(
        select(CalibrationRecord.measured)
        .where(CalibrationRecord.weights_fingerprint == weights_fingerprint)
        .order_by(CalibrationRecord.updated_at.desc())
    )
    return Measurements(calibrations=[Calibration.from_dict(row) for row in rows])


def load_with_shipped(session: Session, model_id: str) -> Measurements:
    """What is known of a model's weights: measured by workers, and shipped beside them.

    CheckpointError where the weights are missing or not whole.
    """
    fingerprint = weights_fingerprint(model_id)
    shipped = [
        each
        for each in read_calibrations(checkpoint_folder(model_id))
        if each.weights_fingerprint == fingerprint
    ]
    return replace(load(session, fingerprint), shipped=shipped)


def save(session: Session, calibration: Calibration, *, sample_count: int = 1) -> None:
    """Keep a calibration; needs a system session.

    `sample_count` is the number of renders that its seconds are medians of. What it does not
    know stays as it was: fork steps where it has none, and seconds that rest on more renders.
    """
    key = _key(calibration)
    session.execute(
        insert(CalibrationRecord)
        .values(**key, measured=calibration.to_dict(), sample_count=0)
        .on_conflict_do_nothing()
    )
    record = session.scalars(
        select(CalibrationRecord)
        .filter_by(**key)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one()
    known = Calibration.from_dict(record.measured)
    kept = calibration if calibration.has_forks else known
    if sample_count >= min(record.sample_count, SETTLED_SAMPLES):
        kept = _with_seconds_of(kept, calibration)
        record.sample_count = sample_count
    else:
        kept = _with_seconds_of(kept, known)
    record.measured = kept.to_dict()
    record.updated_at = func.now()
    session.flush()


def _key(calibration: Calibration) -> dict[str, Any]:
    return {name: getattr(calibration, name) for name in _KEY} | {
        "profile": calibration.profile.value
    }


def _with_seconds_of(calibration: Calibration, timed: Calibration) -> Calibration:
    return replace(
        calibration,
        step_seconds=timed.step_seconds,
        text_seconds=timed.text_seconds,
        decode_seconds=timed.decode_seconds,
    )
