"""Which places the values of a geography name, beside the values themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0028"
down_revision: str | None = "0027"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    op.add_column("parameters", sa.Column("places", JSONB(), nullable=False, server_default="{}"))
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.drop_column("parameters", "places")
