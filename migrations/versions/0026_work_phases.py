"""What a render worker does after the last step of a group, and how long that is likely to take."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0026"
down_revision: str | None = "0025"
branch_labels: str | None = None
depends_on: str | None = None

PHASES = ("rendering", "checking", "finishing")


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    # Each row is a second old and written anew: what is not known yet needs no guess.
    op.execute("TRUNCATE worker_progress")
    op.add_column("worker_progress", sa.Column("group_count", sa.Integer(), nullable=False))
    phase = sa.Enum(*PHASES, name="phase", native_enum=False, create_constraint=True, length=24)
    op.add_column("worker_progress", sa.Column("phase", phase, nullable=False))
    op.add_column("worker_progress", sa.Column("rest_s", sa.Double()))
    op.add_column("worker_progress", sa.Column("steps_done_at", sa.DateTime(timezone=True)))
    op.execute("RESET ROLE")


def downgrade() -> None:
    for name in ("steps_done_at", "rest_s", "phase", "group_count"):
        op.drop_column("worker_progress", name)
