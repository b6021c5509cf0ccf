"""What a batch may spend at most, why it stands still, and the event that tells of it."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0029"
down_revision: str | None = "0028"
branch_labels: str | None = None
depends_on: str | None = None

OF_BATCHES = (
    "batch.expanded",
    "batch.progressed",
    "batch.completed",
    "batch.failed",
    "batch.cancelled",
)
OTHERS = ("variant.completed", "review.completed", "endpoint.disabled", "endpoint.ping")
BUDGET_REACHED = "budget.reached"
# Changed by the table's owner, who sees its rows only without the policy.
EVENTS = "webhook_events"


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.add_column("batches", sa.Column("spend_cap_micros", sa.BigInteger()))
    op.add_column(
        "batches",
        sa.Column(
            "pause_reason",
            sa.Enum("budget", name="pause_reason", native_enum=False, length=24),
        ),
    )
    op.create_check_constraint(
        op.f("ck_batches_pause_reason"), "batches", "pause_reason IN ('budget')"
    )
    _allow((*OF_BATCHES, BUDGET_REACHED, *OTHERS))
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.execute(f"ALTER TABLE {EVENTS} NO FORCE ROW LEVEL SECURITY")
    op.execute(f"DELETE FROM {EVENTS} WHERE event_type = '{BUDGET_REACHED}'")
    op.execute(f"ALTER TABLE {EVENTS} FORCE ROW LEVEL SECURITY")
    _allow((*OF_BATCHES, *OTHERS))
    op.drop_column("batches", "pause_reason")
    op.drop_column("batches", "spend_cap_micros")
    op.execute("RESET ROLE")


def _allow(event_types: Sequence[str]) -> None:
    name = op.f("ck_webhook_events_event_type")
    op.drop_constraint(name, EVENTS)
    allowed = ", ".join(f"'{each}'" for each in event_types)
    op.create_check_constraint(name, EVENTS, f"event_type IN ({allowed})")
