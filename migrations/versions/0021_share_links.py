"""Links for reviewers without an account, and the link that a review came by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0021"
down_revision: str | None = "0020"
branch_labels: str | None = None
depends_on: str | None = None

CURRENT_WORKSPACE = "nullif(current_setting('adloom.workspace_id', true), '')::uuid"


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "share_links",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("created_at", moment, nullable=False, server_default=sa.func.now()),
        _reference("workspace_id", "workspaces.id", ondelete="CASCADE", nullable=False),
        _reference("batch_id", "batches.id", ondelete="CASCADE", nullable=False),
        sa.Column("token_sha256", sa.String(64), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("can_review", sa.Boolean(), nullable=False),
        _reference("created_by", "users.id", ondelete="SET NULL", nullable=True),
        sa.Column("expires_at", moment, nullable=False),
        sa.Column("revoked_at", moment),
        sa.Column("last_used_at", moment),
        sa.UniqueConstraint("token_sha256"),
    )
    op.create_index("ix_share_links_batch_id", "share_links", ["batch_id"])
    # Whoever adds a reference reads every row, which the policy hides from the owner too. Nobody
    # else sees the table in between: this transaction has it locked.
    op.execute("ALTER TABLE reviews NO FORCE ROW LEVEL SECURITY")
    op.add_column(
        "reviews", _reference("share_link_id", "share_links.id", ondelete="SET NULL", nullable=True)
    )
    op.execute("ALTER TABLE reviews FORCE ROW LEVEL SECURITY")
    op.execute("GRANT SELECT, INSERT, UPDATE ON share_links TO adloom_app")
    op.execute("ALTER TABLE share_links ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_workspace ON share_links USING (workspace_id = {CURRENT_WORKSPACE})"
    )
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.drop_column("reviews", "share_link_id")
    op.drop_table("share_links")
    op.execute("RESET ROLE")


def _reference(name: str, target: str, *, ondelete: str, nullable: bool) -> sa.Column[sa.Uuid]:
    return sa.Column(name, sa.Uuid(), sa.ForeignKey(target, ondelete=ondelete), nullable=nullable)
