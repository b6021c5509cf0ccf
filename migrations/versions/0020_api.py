"""The API: answers kept by idempotency key, and the campaign that holds single generations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0020"
down_revision: str | None = "0011"
branch_labels: str | None = None
depends_on: str | None = None

CURRENT_WORKSPACE = "nullif(current_setting('adloom.workspace_id', true), '')::uuid"


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
        ),
        sa.Column(
            "workspace_id",
            sa.Uuid(),
            sa.ForeignKey("workspaces.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("workspace_id", "key"),
    )
    op.create_index(
        "ix_idempotency_keys_workspace_id_expires_at",
        "idempotency_keys",
        ["workspace_id", "expires_at"],
    )
    op.execute("GRANT SELECT, INSERT, DELETE ON idempotency_keys TO adloom_app")
    op.execute("ALTER TABLE idempotency_keys ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(
        "CREATE POLICY own_workspace ON idempotency_keys "
        f"USING (workspace_id = {CURRENT_WORKSPACE})"
    )
    op.add_column(
        "campaigns",
        sa.Column("is_hidden", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_index(
        "uq_campaigns_hidden",
        "campaigns",
        ["workspace_id"],
        unique=True,
        postgresql_where="is_hidden",
    )
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.drop_index("uq_campaigns_hidden", "campaigns")
    op.drop_column("campaigns", "is_hidden")
    op.drop_table("idempotency_keys")
    op.execute("RESET ROLE")
