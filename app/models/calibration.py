"""What was measured of the models: shared by all workspaces, written by workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import String, func
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base


class CalibrationRecord(Base):
    """One `engine.plan.Calibration`: its key as columns, and all of it as the engine writes it."""

    __tablename__ = "calibrations"

    weights_fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    device_kind: Mapped[str] = mapped_column(String(200), primary_key=True)
    width: Mapped[int] = mapped_column(primary_key=True)
    height: Mapped[int] = mapped_column(primary_key=True)
    num_frames: Mapped[int] = mapped_column(primary_key=True)
    solver: Mapped[str] = mapped_column(String(100), primary_key=True)
    num_inference_steps: Mapped[int] = mapped_column(primary_key=True)
    guidance_scale: Mapped[float] = mapped_column(primary_key=True)
    profile: Mapped[str] = mapped_column(String(24), primary_key=True)
    # `Calibration.to_dict()`: fork step by parameter kind, seconds per step, text and decode.
    measured: Mapped[dict[str, Any]]
    # Renders that the seconds are medians of.
    sample_count: Mapped[int]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
