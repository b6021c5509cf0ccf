"""Webhooks: endpoints, the outbox of events, deliveries with their attempts."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0010"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None

CURRENT_WORKSPACE = "nullif(current_setting('adloom.workspace_id', true), '')::uuid"

# What adloom_app may do in its own workspace. Attempts are written by the dispatcher alone.
GRANTS_IN_WORKSPACE = {
    "webhook_endpoints": "SELECT, INSERT, UPDATE, DELETE",
    "webhook_events": "SELECT, INSERT",
    "webhook_deliveries": "SELECT, INSERT, UPDATE",
    "webhook_attempts": "SELECT",
    "webhook_variant_ends": "SELECT",
}
EVENT_TYPES = (
    "batch.expanded",
    "batch.progressed",
    "batch.completed",
    "batch.failed",
    "batch.cancelled",
    "variant.completed",
    "review.completed",
    "endpoint.disabled",
    "endpoint.ping",
)


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    _create_endpoints()
    _create_deliveries()
    for table, privileges in GRANTS_IN_WORKSPACE.items():
        op.execute(f"GRANT {privileges} ON {table} TO adloom_app")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY own_workspace ON {table} USING (workspace_id = {CURRENT_WORKSPACE})"
        )
    op.execute("RESET ROLE")


def downgrade() -> None:
    for table in reversed(GRANTS_IN_WORKSPACE):
        op.drop_table(table)


def _create_endpoints() -> None:
    op.create_table(
        "webhook_endpoints",
        _id(),
        _created_at(),
        _reference("workspace_id", "workspaces.id"),
        _column("url", sa.Text()),
        _column("description", sa.String(200), server_default=""),
        _column("event_types", JSONB()),
        _column("secret_sealed", sa.LargeBinary()),
        sa.Column("previous_secret_sealed", sa.LargeBinary()),
        _time("previous_secret_expires_at"),
        sa.Column("created_by", sa.Uuid(), sa.ForeignKey("users.id", ondelete="SET NULL")),
        _time("disabled_at"),
        _choice("disabled_reason", "manual", "gone", "failing", nullable=True),
        _time("failing_since"),
        _time("last_failed_at"),
        _time("last_succeeded_at"),
        _time("throttled_until"),
        _time("last_claimed_at"),
    )
    op.create_index("ix_webhook_endpoints_workspace_id", "webhook_endpoints", ["workspace_id"])
    op.create_table(
        "webhook_events",
        _id(),
        _created_at(),
        _reference("workspace_id", "workspaces.id"),
        _choice("event_type", *EVENT_TYPES),
        _column("data", JSONB()),
        sa.Column("once_key", sa.String(120)),
        _reference("endpoint_id", "webhook_endpoints.id", nullable=True),
        _time("fanned_out_at"),
        sa.UniqueConstraint("workspace_id", "once_key"),
    )
    op.create_index(
        "ix_webhook_events_waiting",
        "webhook_events",
        ["id"],
        postgresql_where="fanned_out_at IS NULL",
    )
    op.create_index("ix_webhook_events_created_at", "webhook_events", ["created_at"])


def _create_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        _id(),
        _created_at(),
        _reference("workspace_id", "workspaces.id"),
        _reference("endpoint_id", "webhook_endpoints.id"),
        _reference("event_id", "webhook_events.id"),
        _choice("state", "pending", "succeeded", "failed", "held"),
        _column("schedule_position", sa.Integer(), server_default="0"),
        _column("attempt_count", sa.Integer(), server_default="0"),
        _time("next_attempt_at", nullable=False),
        sa.Column("lease_token", sa.BigInteger()),
        _time("lease_expires_at"),
        sa.Column("last_status", sa.Integer()),
        sa.Column("last_error", sa.Text()),
        _time("finished_at"),
        sa.UniqueConstraint("endpoint_id", "event_id"),
    )
    op.create_index(
        "ix_webhook_deliveries_due",
        "webhook_deliveries",
        ["endpoint_id", "next_attempt_at"],
        postgresql_where="state = 'pending'",
    )
    op.create_index("ix_webhook_deliveries_event_id", "webhook_deliveries", ["event_id"])
    op.create_table(
        "webhook_attempts",
        _id(),
        _reference("workspace_id", "workspaces.id"),
        _reference("delivery_id", "webhook_deliveries.id"),
        _column("number", sa.Integer()),
        _time("started_at", nullable=False),
        _time("finished_at"),
        sa.Column("latency_ms", sa.Integer()),
        sa.Column("status", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.Column("answer", sa.Text()),
        sa.UniqueConstraint("delivery_id", "number"),
    )
    op.create_table(
        "webhook_variant_ends",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        _reference("workspace_id", "workspaces.id"),
        _reference("batch_id", "batches.id"),
        _reference("job_id", "render_jobs.id"),
    )
    op.create_index("ix_webhook_variant_ends_batch_id", "webhook_variant_ends", ["batch_id"])


def _column(name: str, kind: Any, *args: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *args, **{"nullable": False, **options})


def _id() -> sa.Column[Any]:
    return _column("id", sa.Uuid(), primary_key=True)


def _created_at() -> sa.Column[Any]:
    return _time("created_at", nullable=False, server_default=sa.func.now())


def _time(name: str, **options: Any) -> sa.Column[Any]:
    return _column(name, sa.DateTime(timezone=True), **{"nullable": True, **options})


def _choice(name: str, *values: str, **options: Any) -> sa.Column[Any]:
    kind = sa.Enum(*values, name=name, native_enum=False, create_constraint=True, length=24)
    return _column(name, kind, **options)


def _reference(name: str, target: str, **options: Any) -> sa.Column[Any]:
    return _column(name, sa.Uuid(), sa.ForeignKey(target, ondelete="CASCADE"), **options)
