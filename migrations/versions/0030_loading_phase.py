"""The phase of a render worker that loads its model."""

from __future__ import annotations

from alembic import op

revision: str = "0030"
down_revision: str | None = "0029"
branch_labels: str | None = None
depends_on: str | None = None

TABLE = "worker_progress"
BEFORE = ("rendering", "checking", "finishing")


def upgrade() -> None:
    _allow((*BEFORE, "loading"))


def downgrade() -> None:
    _allow(BEFORE)


def _allow(phases: tuple[str, ...]) -> None:
    op.execute("SET LOCAL ROLE adloom_owner")
    # Each row is a second old and written anew.
    op.execute(f"TRUNCATE {TABLE}")
    name = op.f(f"ck_{TABLE}_phase")
    op.drop_constraint(name, TABLE)
    op.create_check_constraint(name, TABLE, f"phase IN ({', '.join(map(repr, phases))})")
    op.execute("RESET ROLE")
