"""What a render worker has in hand, job by job: only that is charged a start when it is lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision: str = "0022"
down_revision: str | None = "0021"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.add_column(
        "worker_progress",
        sa.Column("in_hand", ARRAY(sa.Uuid()), nullable=False, server_default="{}"),
    )
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.drop_column("worker_progress", "in_hand")
