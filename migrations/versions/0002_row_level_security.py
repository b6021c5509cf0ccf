"""Who may read and write what: grants, and policies that show a session one workspace alone."""

from __future__ import annotations

from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None

# An unset or empty setting gives null, and null equals nothing: no rows, no inserts.
CURRENT_WORKSPACE = "nullif(current_setting('adloom.workspace_id', true), '')::uuid"

# What adloom_app may do in its own workspace. Results of renders are written by workers alone.
GRANTS_IN_WORKSPACE = {
    "memberships": "SELECT, INSERT, UPDATE, DELETE",
    "api_keys": "SELECT, INSERT, UPDATE, DELETE",
    "campaigns": "SELECT, INSERT, UPDATE, DELETE",
    "prompt_templates": "SELECT, INSERT, UPDATE, DELETE",
    "parameters": "SELECT, INSERT, UPDATE, DELETE",
    "uploads": "SELECT, INSERT, UPDATE, DELETE",
    "batches": "SELECT, INSERT, UPDATE, DELETE",
    "quotes": "SELECT, INSERT",
    "variants": "SELECT, INSERT",
    "render_jobs": "SELECT, INSERT, UPDATE",
    "attempts": "SELECT",
    "artifacts": "SELECT",
    "usage": "SELECT",
    "reviews": "SELECT, INSERT, UPDATE, DELETE",
    "batch_counters": "SELECT",
    "batch_deltas": "SELECT, INSERT",
}

ALL_TABLES = ", ".join(("users", "workspaces", *GRANTS_IN_WORKSPACE))

SHOW_MEMBERS = """
CREATE POLICY members_of_workspace ON users FOR SELECT TO adloom_app USING (
    EXISTS (SELECT FROM memberships WHERE memberships.user_id = users.id)
)
"""


def upgrade() -> None:
    op.execute("GRANT SELECT ON alembic_version TO adloom_app, adloom_system")
    op.execute("SET LOCAL ROLE adloom_owner")
    op.execute("GRANT USAGE ON SCHEMA public TO adloom_app, adloom_system")
    for table, privileges in GRANTS_IN_WORKSPACE.items():
        op.execute(f"GRANT {privileges} ON {table} TO adloom_app")
        _protect(table, f"workspace_id = {CURRENT_WORKSPACE}")
    op.execute("GRANT SELECT, UPDATE ON workspaces TO adloom_app")
    _protect("workspaces", f"id = {CURRENT_WORKSPACE}")
    # Password hashes stay out of reach of the web process.
    op.execute("GRANT SELECT (id, email, name, session_version, created_at) ON users TO adloom_app")
    op.execute("ALTER TABLE users ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(SHOW_MEMBERS)
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {ALL_TABLES} TO adloom_system")
    op.execute("GRANT USAGE ON SEQUENCE lease_tokens TO adloom_system")
    # Later tables are open to background work at once, and to people only by a decision.
    op.execute(
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public "
        "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO adloom_system"
    )
    op.execute(
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO adloom_system"
    )
    op.execute("RESET ROLE")


def downgrade() -> None:
    op.execute("REVOKE ALL ON alembic_version FROM adloom_app, adloom_system")
    op.execute("SET LOCAL ROLE adloom_owner")
    op.execute(
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public "
        "REVOKE SELECT, INSERT, UPDATE, DELETE ON TABLES FROM adloom_system"
    )
    op.execute(
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE USAGE ON SEQUENCES FROM adloom_system"
    )
    op.execute("DROP POLICY members_of_workspace ON users")
    op.execute("ALTER TABLE users DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY")
    for table in ("workspaces", *GRANTS_IN_WORKSPACE):
        op.execute(f"DROP POLICY own_workspace ON {table}")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY")
    op.execute(f"REVOKE ALL ON {ALL_TABLES} FROM adloom_app, adloom_system")
    # A grant on columns is another grant than one on the table.
    op.execute("REVOKE ALL (id, email, name, session_version, created_at) ON users FROM adloom_app")
    op.execute("REVOKE ALL ON SEQUENCE lease_tokens FROM adloom_system")
    op.execute("REVOKE USAGE ON SCHEMA public FROM adloom_app, adloom_system")
    op.execute("RESET ROLE")


def _protect(table: str, condition: str) -> None:
    """Show and accept rows that meet the condition alone, whoever asks; the owner too."""
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY own_workspace ON {table} USING ({condition})")
