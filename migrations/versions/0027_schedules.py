"""Schedules that launch batches by the clock, and what became of each time they fired."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0027"
down_revision: str | None = "0026"
branch_labels: str | None = None
depends_on: str | None = None

CURRENT_WORKSPACE = "nullif(current_setting('adloom.workspace_id', true), '')::uuid"

MOMENT = sa.DateTime(timezone=True)
# A wall-clock time: the zone stands beside it.
LOCAL = sa.DateTime(timezone=False)
OUTCOMES = ("launched", "resumed", "queued", "skipped", "missed", "failed")
REASONS = (
    "overlap",
    "budget",
    "away",
    "window_over",
    "exhausted",
    "batch_gone",
    "archived",
    "refused",
    "error",
    "stopped",
    "late",
)


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    _create_schedules()
    _create_fires()
    for table in ("schedules", "schedule_fires"):
        op.execute(f"GRANT SELECT, INSERT, UPDATE ON {table} TO adloom_app")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY own_workspace ON {table} USING (workspace_id = {CURRENT_WORKSPACE})"
        )
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.drop_table("schedule_fires")
    op.drop_table("schedules")


def _create_schedules() -> None:
    op.create_table(
        "schedules",
        *_first_columns(),
        _reference("campaign_id", "campaigns.id", "CASCADE"),
        _reference("batch_id", "batches.id", "CASCADE"),
        _column("name", sa.String(200)),
        _choice("mode", "repeat", "rotation"),
        sa.Column("rotation_size", sa.Integer()),
        _column("rotation_position", sa.Integer(), server_default="0"),
        _column("has_fresh_seeds", sa.Boolean()),
        _column("timing", JSONB()),
        _column("time_zone", sa.String(64)),
        sa.Column("deadline", sa.Time()),
        _choice("deadline_policy", "run_on", "pause"),
        _choice("missed_policy", "skip", "run_once"),
        _choice("overlap_policy", "skip", "queue"),
        sa.Column("budget_micros", sa.BigInteger()),
        sa.Column("next_fire_at", MOMENT),
        sa.Column("next_occurrence", LOCAL),
        _column("fire_count", sa.Integer(), server_default="0"),
        sa.Column("paused_at", MOMENT),
        _column("pause_note", sa.String(500), server_default=""),
        sa.Column("deleted_at", MOMENT),
        sa.Column("updated_at", MOMENT),
        _reference("created_by", "users.id", "SET NULL", nullable=True),
    )
    for column in ("campaign_id", "batch_id", "workspace_id"):
        op.create_index(f"ix_schedules_{column}", "schedules", [column])
    op.create_index(
        "ix_schedules_due",
        "schedules",
        ["next_fire_at"],
        postgresql_where="next_fire_at IS NOT NULL AND paused_at IS NULL AND deleted_at IS NULL",
    )


def _create_fires() -> None:
    op.create_table(
        "schedule_fires",
        *_first_columns(),
        _reference("schedule_id", "schedules.id", "CASCADE"),
        sa.Column("occurrence", LOCAL),
        _column("time_zone", sa.String(64)),
        _column("due_at", MOMENT),
        _column("missed_count", sa.Integer(), server_default="0"),
        _choice("outcome", *OUTCOMES),
        _choice("reason_code", *REASONS, nullable=True),
        _column("reason", sa.Text(), server_default=""),
        _reference("batch_id", "batches.id", "SET NULL", nullable=True),
        sa.Column("deadline_at", MOMENT),
        sa.Column("settled_at", MOMENT),
        sa.UniqueConstraint("schedule_id", "time_zone", "occurrence"),
    )
    op.create_index("ix_schedule_fires_schedule_id_id", "schedule_fires", ["schedule_id", "id"])
    op.create_index("ix_schedule_fires_batch_id", "schedule_fires", ["batch_id"])
    op.create_index(
        "ix_schedule_fires_queued",
        "schedule_fires",
        ["schedule_id"],
        postgresql_where="outcome = 'queued'",
    )
    op.create_index(
        "ix_schedule_fires_deadline_at",
        "schedule_fires",
        ["deadline_at"],
        postgresql_where="deadline_at IS NOT NULL AND settled_at IS NULL",
    )


def _first_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("id", sa.Uuid(), primary_key=True),
        _column("created_at", MOMENT, server_default=sa.func.now()),
        _reference("workspace_id", "workspaces.id", "CASCADE"),
    ]


def _column(name: str, kind: Any, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, **more)


def _choice(name: str, *values: str, nullable: bool = False) -> sa.Column[Any]:
    kind = sa.Enum(*values, name=name, native_enum=False, create_constraint=True, length=24)
    return sa.Column(name, kind, nullable=nullable)


def _reference(
    name: str, target: str, ondelete: str, *, nullable: bool = False
) -> sa.Column[sa.Uuid]:
    return sa.Column(name, sa.Uuid(), sa.ForeignKey(target, ondelete=ondelete), nullable=nullable)
