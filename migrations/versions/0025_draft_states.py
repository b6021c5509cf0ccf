"""States of drafts, and which draft a finished render goes on from."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0025"
down_revision: str | None = "0024"
branch_labels: str | None = None
depends_on: str | None = None

CURRENT_WORKSPACE = "nullif(current_setting('adloom.workspace_id', true), '')::uuid"


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.create_table(
        "draft_states",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("workspace_id", sa.Uuid(), _key("workspaces.id", "CASCADE"), nullable=False),
        sa.Column("variant_id", sa.Uuid(), _key("variants.id", "SET NULL")),
        sa.Column("variant_key", sa.String(64), nullable=False),
        sa.Column("storage_key", sa.String(255), nullable=False, unique=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        _moment("created_at", server_default=sa.func.now()),
        _moment("expires_at"),
    )
    op.create_index("ix_draft_states_variant_id", "draft_states", ["variant_id"])
    op.create_index(
        "ix_draft_states_workspace_id_variant_key", "draft_states", ["workspace_id", "variant_key"]
    )
    op.execute("ALTER TABLE draft_states ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_workspace ON draft_states USING (workspace_id = {CURRENT_WORKSPACE})"
    )
    op.execute("GRANT SELECT ON draft_states TO adloom_app")
    # The new foreign key is checked by the owner, who sees no rows under the policy.
    op.execute("ALTER TABLE variants NO FORCE ROW LEVEL SECURITY")
    op.add_column("variants", sa.Column("draft_id", sa.Uuid(), _key("variants.id", "SET NULL")))
    op.execute("ALTER TABLE variants FORCE ROW LEVEL SECURITY")
    op.create_index(
        "ix_variants_draft_id",
        "variants",
        ["draft_id"],
        postgresql_where=sa.text("draft_id IS NOT NULL"),
    )
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.drop_column("variants", "draft_id")
    op.drop_table("draft_states")
    op.execute("RESET ROLE")


def _key(target: str, on_delete: str) -> sa.ForeignKey:
    return sa.ForeignKey(target, ondelete=on_delete)


def _moment(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, **options)
