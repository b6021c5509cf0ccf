"""Where in its upload a batch's expansion goes on, so that no chunk reads the rows before it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.add_column(
        "batches",
        sa.Column("expansion_offset", sa.BigInteger(), nullable=False, server_default="0"),
    )
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.drop_column("batches", "expansion_offset")
