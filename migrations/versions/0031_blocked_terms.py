"""Terms that a workspace never renders."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0031"
down_revision: str | None = "0030"
branch_labels: str | None = None
depends_on: str | None = None

CURRENT_WORKSPACE = "nullif(current_setting('adloom.workspace_id', true), '')::uuid"
TABLE = "blocked_terms"


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.create_table(
        TABLE,
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
        ),
        sa.Column(
            "workspace_id",
            sa.Uuid(),
            sa.ForeignKey("workspaces.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("term", sa.String(200), nullable=False),
        sa.Column("key", sa.String(1000), nullable=False),
        sa.Column("reason", sa.String(200), server_default="", nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.Uuid(), sa.ForeignKey("users.id", ondelete="SET NULL")),
        sa.UniqueConstraint("workspace_id", "key"),
    )
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE} TO adloom_app")
    op.execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY own_workspace ON {TABLE} USING (workspace_id = {CURRENT_WORKSPACE})")
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.drop_table(TABLE)
