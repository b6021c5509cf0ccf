"""Each render job keeps the way through the denoising tree that it was planned with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    # Jobs from before share nothing: their plan did not say where they fork.
    op.add_column(
        "render_jobs", sa.Column("fork_steps", JSONB(), nullable=False, server_default="{}")
    )
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.drop_column("render_jobs", "fork_steps")
    op.execute("RESET ROLE")
