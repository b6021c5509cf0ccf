"""Where renders that were stopped between two steps go on from."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0023"
down_revision: str | None = "0022"
branch_labels: str | None = None
depends_on: str | None = None

CURRENT_WORKSPACE = "nullif(current_setting('adloom.workspace_id', true), '')::uuid"


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.create_table(
        "render_states",
        _reference("variant_id", "variants.id", primary_key=True),
        sa.Column("storage_key", sa.String(255), primary_key=True),
        _reference("workspace_id", "workspaces.id"),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        _moment("created_at", server_default=sa.func.now()),
        _moment("expires_at"),
    )
    op.create_index("ix_render_states_storage_key", "render_states", ["storage_key"])
    op.execute("ALTER TABLE render_states ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_workspace ON render_states USING (workspace_id = {CURRENT_WORKSPACE})"
    )
    op.execute("GRANT SELECT ON render_states TO adloom_app")
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.drop_table("render_states")
    op.execute("RESET ROLE")


def _reference(name: str, target: str, **options: Any) -> sa.Column[Any]:
    key = sa.ForeignKey(target, ondelete="CASCADE")
    return sa.Column(name, sa.Uuid(), key, nullable=False, **options)


def _moment(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, **options)
