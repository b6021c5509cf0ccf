"""Uploads keep their mended rows, the list of repairs, and what was asked about them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: str | None = None
depends_on: str | None = None

COLUMNS = (
    "is_open",
    "questions",
    "answers",
    "table_key",
    "repairs_key",
    "repair_count",
    "changes",
)


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    for column in (
        sa.Column("is_open", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("questions", JSONB(), nullable=False, server_default="[]"),
        sa.Column("answers", JSONB(), nullable=False, server_default="{}"),
        sa.Column("table_key", sa.String(255)),
        sa.Column("repairs_key", sa.String(255)),
        sa.Column("repair_count", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("changes", JSONB()),
    ):
        op.add_column("uploads", column)
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    for column in reversed(COLUMNS):
        op.drop_column("uploads", column)
    op.execute("RESET ROLE")
