"""What workers tell: how far they are within their renders, and what they measured of models."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | None = None
depends_on: str | None = None

CURRENT_WORKSPACE = "nullif(current_setting('adloom.workspace_id', true), '')::uuid"


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.create_table(
        "worker_progress",
        sa.Column("worker", sa.String(120), primary_key=True),
        _reference("workspace_id", "workspaces.id"),
        _reference("batch_id", "batches.id"),
        sa.Column("purpose", _purpose(), nullable=False),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        _number("job_count"),
        _number("steps_done"),
        _number("steps_planned"),
        _moment("started_at"),
        _moment("updated_at"),
    )
    op.create_index("ix_worker_progress_batch_id", "worker_progress", ["batch_id"])
    op.execute("ALTER TABLE worker_progress ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_workspace ON worker_progress USING (workspace_id = {CURRENT_WORKSPACE})"
    )
    op.create_table(
        "calibrations",
        _text("weights_fingerprint", 64, primary_key=True),
        _text("device_kind", 200, primary_key=True),
        *(_number(name, primary_key=True) for name in ("width", "height", "num_frames")),
        _text("solver", 100, primary_key=True),
        _number("num_inference_steps", primary_key=True),
        sa.Column("guidance_scale", sa.Double(), primary_key=True),
        _text("profile", 24, primary_key=True),
        sa.Column("measured", JSONB(), nullable=False),
        _number("sample_count"),
        _moment("updated_at"),
    )
    # Measurements belong to no workspace: all of them are priced with the same.
    op.execute("GRANT SELECT ON worker_progress, calibrations TO adloom_app")
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.drop_table("calibrations")
    op.drop_table("worker_progress")


def _reference(name: str, target: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Uuid(), sa.ForeignKey(target, ondelete="CASCADE"), nullable=False)


def _purpose() -> sa.Enum:
    return sa.Enum(
        "preview", "final", name="purpose", native_enum=False, create_constraint=True, length=24
    )


def _number(name: str, **options: Any) -> sa.Column[Any]:
    # Of a key with several columns none counts up by itself.
    return sa.Column(name, sa.Integer(), nullable=False, autoincrement=False, **options)


def _text(name: str, length: int, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.String(length), nullable=False, **options)


def _moment(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())
