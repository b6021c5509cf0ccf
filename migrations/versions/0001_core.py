"""The database roles and the core tables: tenants, campaigns, batches, render jobs, artifacts."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None

# Roles belong to the whole cluster, so another database may have made them already.
CREATE_ROLES = """
DO $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT * FROM (VALUES
            ('adloom_owner', 'NOLOGIN'),
            ('adloom_app', 'LOGIN NOBYPASSRLS'),
            ('adloom_system', 'LOGIN BYPASSRLS')
        ) AS roles (name, attributes)
    LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted.name) THEN
                EXECUTE format('CREATE ROLE %I %s', wanted.name, wanted.attributes);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- another database of this cluster was a moment faster
        END;
    END LOOP;
    -- Whoever migrates makes the tables as adloom_owner; a superuser may do so anyway.
    IF NOT pg_has_role(current_user, 'adloom_owner', 'SET') THEN
        EXECUTE format('GRANT adloom_owner TO %I', current_user);
    END IF;
END
$$
"""

TABLES = (
    "usage",
    "attempts",
    "reviews",
    "render_jobs",
    "variants",
    "quotes",
    "batch_deltas",
    "batch_counters",
    "batches",
    "uploads",
    "prompt_templates",
    "parameters",
    "memberships",
    "campaigns",
    "artifacts",
    "api_keys",
    "workspaces",
    "users",
)

# Rows of these tables change often: vacuum after 1 % of dead rows instead of 20 %.
BUSY_TABLES = ("render_jobs", "batch_deltas", "batch_counters")

CLAIMABLE = "state IN ('queued', 'retryable')"
LIVE = "state IN ('scheduled', 'queued', 'retryable', 'running')"
JOB_STATES = (
    "scheduled",
    "queued",
    "running",
    "retryable",
    "succeeded",
    "failed",
    "cancelled",
    "quarantined",
)
BATCH_STATES = (
    "previewing",
    "expanding",
    "running",
    "paused",
    "completed",
    "failed",
    "cancelled",
)
PARAMETER_KINDS = (
    "geography",
    "audience",
    "backdrop",
    "text",
    "choice",
    "asset",
    "size",
    "duration",
    "language",
)


def upgrade() -> None:
    op.execute(CREATE_ROLES)
    op.execute("GRANT USAGE, CREATE ON SCHEMA public TO adloom_owner")
    op.execute("SET LOCAL ROLE adloom_owner")
    op.execute("CREATE SEQUENCE lease_tokens AS bigint")
    _create_tenants()
    _create_campaigns()
    _create_batches()
    _create_render_jobs()
    for table in BUSY_TABLES:
        op.execute(
            f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.01, "
            "autovacuum_analyze_scale_factor = 0.02)"
        )
    op.execute("RESET ROLE")


def downgrade() -> None:
    """Remove the tables; the roles stay, for other databases of the cluster may use them."""
    for table in TABLES:
        op.drop_table(table)
    op.execute("DROP SEQUENCE lease_tokens")
    op.execute("REVOKE USAGE, CREATE ON SCHEMA public FROM adloom_owner")


def _create_tenants() -> None:
    op.create_table(
        "users",
        _id(),
        _created_at(),
        _text("email", 320),
        _text("name", 120),
        _text("password_hash", 255),
        _number("session_version", server_default="1"),
    )
    op.create_index("uq_users_email_lower", "users", [sa.text("lower(email)")], unique=True)
    op.create_table(
        "workspaces",
        _id(),
        _created_at(),
        _text("name", 120),
        _text("slug", 120),
        _text("time_zone", 64, server_default="UTC"),
        _text("currency", 3, server_default="USD"),
        _big("rate_micros_per_unit", server_default="100"),
        _number("max_variants_per_batch", server_default="10000"),
        sa.UniqueConstraint("slug"),
    )
    op.create_table(
        "memberships",
        _id(),
        _created_at(),
        _workspace(),
        _reference("user_id", "users.id", ondelete="CASCADE"),
        _choice("role", "owner", "editor", "viewer"),
        sa.UniqueConstraint("workspace_id", "user_id"),
    )
    op.create_index("ix_memberships_user_id", "memberships", ["user_id"])
    op.create_table(
        "api_keys",
        _id(),
        _created_at(),
        _workspace(),
        _text("name", 120),
        _text("prefix", 16),
        _text("key_sha256", 64),
        _choice("role", "owner", "editor", "viewer"),
        _json("scopes"),
        _person("created_by"),
        _time("expires_at"),
        _time("last_used_at"),
        _time("revoked_at"),
        sa.UniqueConstraint("prefix"),
    )


def _create_campaigns() -> None:
    op.create_table(
        "campaigns",
        _id(),
        _created_at(),
        _workspace(),
        _text("name", 200),
        _text("brief", server_default=""),
        _json("settings"),
        _person("created_by"),
        _time("updated_at"),
        _time("archived_at"),
    )
    op.create_table(
        "prompt_templates",
        _id(),
        _created_at(),
        _workspace(),
        _reference("campaign_id", "campaigns.id", ondelete="CASCADE"),
        _number("version"),
        _text("text"),
        _text("negative_text", server_default=""),
        _person("created_by"),
        sa.UniqueConstraint("campaign_id", "version"),
    )
    op.create_table(
        "parameters",
        _id(),
        _created_at(),
        _workspace(),
        _reference("campaign_id", "campaigns.id", ondelete="CASCADE"),
        _text("name", 64),
        _choice("kind", *PARAMETER_KINDS),
        _json("values"),
        _number("position"),
        sa.UniqueConstraint("campaign_id", "name"),
    )
    op.create_table(
        "uploads",
        _id(),
        _created_at(),
        _workspace(),
        _reference("campaign_id", "campaigns.id", ondelete="CASCADE"),
        _text("filename", 255),
        _text("storage_key", 255),
        _text("sha256", 64),
        _big("size_bytes"),
        _number("row_count"),
        _json("header"),
        _json("dialect"),
        _json("findings"),
        _person("created_by"),
    )
    op.create_index("ix_uploads_campaign_id", "uploads", ["campaign_id"])


def _create_batches() -> None:
    op.create_table(
        "batches",
        _id(),
        _created_at(),
        _workspace(),
        _reference("campaign_id", "campaigns.id", ondelete="CASCADE"),
        _reference("prompt_template_id", "prompt_templates.id"),
        _reference("upload_id", "uploads.id", nullable=True),
        _text("name", 200),
        _choice("state", *BATCH_STATES),
        _choice("mode", "cartesian", "zip", "sampled"),
        _json("spec"),
        _number("variant_count"),
        _number("expansion_cursor", server_default="0"),
        _text("failure", nullable=True),
        _person("created_by"),
        _time("launched_at"),
        _time("expanded_at"),
        _time("completed_at"),
        _time("last_claimed_at"),
    )
    op.create_index(
        "ix_batches_live", "batches", ["state"], postgresql_where="completed_at IS NULL"
    )
    op.create_index("ix_batches_campaign_id_created_at", "batches", ["campaign_id", "created_at"])
    op.create_table(
        "quotes",
        _id(),
        _created_at(),
        _workspace(),
        _batch(),
        _number("variant_count"),
        _float("full_units"),
        _float("shared_units"),
        _big("rate_micros_per_unit"),
        _big("full_cost_micros"),
        _big("cost_micros"),
        _text("currency", 3),
        _float("estimated_s", nullable=True),
        _json("details"),
    )
    op.create_index("ix_quotes_batch_id", "quotes", ["batch_id"])
    op.create_table(
        "variants",
        _id(),
        _created_at(),
        _workspace(),
        _batch(),
        _number("ordinal"),
        _json("values"),
        _json("passthrough"),
        _text("row_id", 200, nullable=True),
        _text("prompt"),
        _text("negative_prompt"),
        _json("slots"),
        _big("seed"),
        _json("settings"),
        _text("variant_key", 64),
        sa.UniqueConstraint("batch_id", "ordinal"),
    )
    op.create_index(
        "ix_variants_workspace_id_variant_key", "variants", ["workspace_id", "variant_key"]
    )
    op.create_table(
        "batch_counters",
        _workspace(),
        _batch(primary_key=True),
        sa.Column("purpose", sa.String(24), primary_key=True),
        sa.Column("state", sa.String(24), primary_key=True),
        _number("count"),
        _big("cost_micros"),
    )
    op.create_table(
        "batch_deltas",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        _workspace(),
        _batch(),
        _text("purpose", 24),
        _text("state", 24),
        _number("count"),
        _big("cost_micros", server_default="0"),
    )
    op.create_index("ix_batch_deltas_batch_id", "batch_deltas", ["batch_id"])


def _create_render_jobs() -> None:
    op.create_table(
        "artifacts",
        _id(),
        _created_at(),
        _workspace(),
        _text("variant_key", 64),
        _text("media_type", 64),
        _text("storage_key", 255),
        _text("poster_key", 255),
        _text("preview_key", 255),
        _text("sha256", 64),
        _big("size_bytes"),
        _number("width"),
        _number("height"),
        _number("num_frames"),
        _float("fps"),
        _text("profile", 24),
        _json("provenance"),
    )
    op.create_index(
        "ix_artifacts_workspace_id_variant_key", "artifacts", ["workspace_id", "variant_key"]
    )
    op.create_table(
        "render_jobs",
        _id(),
        _created_at(),
        _workspace(),
        _batch(),
        _reference("variant_id", "variants.id", ondelete="CASCADE"),
        _choice("purpose", "preview", "final"),
        _choice("state", *JOB_STATES),
        _number("priority", server_default="10"),
        _time("scheduled_at", nullable=False, server_default=sa.func.now()),
        _text("affinity_key", 64),
        _text("group_key", 80),
        _number("plan_order"),
        sa.Column("is_single", sa.Boolean(), nullable=False, server_default="false"),
        _float("work_units"),
        _float("shared_units"),
        _big("lease_token", nullable=True),
        _text("lease_worker", 120, nullable=True),
        _time("lease_expires_at"),
        _time("deadline_at"),
        _number("start_count", server_default="0"),
        _number("max_starts", server_default="3"),
        _text("error_code", 64, nullable=True),
        _text("error_message", nullable=True),
        _reference("artifact_id", "artifacts.id", nullable=True),
        _time("finished_at"),
        sa.UniqueConstraint("variant_id", "purpose"),
    )
    for name, columns, where in (
        ("claimable", ["batch_id", "priority", "scheduled_at", "group_key"], CLAIMABLE),
        ("claimable_affinity", ["batch_id", "affinity_key", "scheduled_at"], CLAIMABLE),
        ("claimable_preview", ["batch_id"], f"purpose = 'preview' AND {CLAIMABLE}"),
        ("scheduled", ["scheduled_at"], "state = 'scheduled'"),
        ("group_live", ["group_key", "plan_order"], LIVE),
        ("leased", ["lease_expires_at"], "state = 'running'"),
        ("batch_id_state", ["batch_id", "state"], None),
        ("batch_id_finished_at", ["batch_id", "finished_at"], "finished_at IS NOT NULL"),
    ):
        op.create_index(f"ix_render_jobs_{name}", "render_jobs", columns, postgresql_where=where)
    op.create_table(
        "attempts",
        _id(),
        _workspace(),
        _reference("job_id", "render_jobs.id", ondelete="CASCADE"),
        _big("lease_token"),
        _number("number"),
        _text("worker", 120),
        _time("started_at", nullable=False, server_default=sa.func.now()),
        _time("finished_at"),
        _text("outcome", 24, nullable=True),
        _text("error_code", 64, nullable=True),
        _text("error_message", nullable=True),
        sa.UniqueConstraint("job_id", "lease_token"),
    )
    op.create_table(
        "usage",
        _id(),
        _created_at(),
        _workspace(),
        _batch(),
        _reference("job_id", "render_jobs.id", ondelete="CASCADE"),
        _float("units"),
        _big("cost_micros"),
        _float("render_s"),
        sa.Column("is_reused", sa.Boolean(), nullable=False),
        sa.UniqueConstraint("job_id"),
    )
    op.create_index("ix_usage_batch_id", "usage", ["batch_id"])
    op.create_table(
        "reviews",
        _created_at(),
        _workspace(),
        _reference("variant_id", "variants.id", ondelete="CASCADE", primary_key=True),
        _choice("state", "pending", "approved", "rejected"),
        _text("reason", server_default=""),
        _person("reviewed_by"),
        _time("updated_at", nullable=False),
    )


def _column(name: str, kind: Any, *args: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *args, **{"nullable": False, **options})


def _id() -> sa.Column[Any]:
    return _column("id", sa.Uuid(), primary_key=True)


def _created_at() -> sa.Column[Any]:
    return _time("created_at", nullable=False, server_default=sa.func.now())


def _text(name: str, length: int | None = None, **options: Any) -> sa.Column[Any]:
    return _column(name, sa.Text() if length is None else sa.String(length), **options)


def _number(name: str, **options: Any) -> sa.Column[Any]:
    return _column(name, sa.Integer(), **options)


def _big(name: str, **options: Any) -> sa.Column[Any]:
    return _column(name, sa.BigInteger(), **options)


def _float(name: str, **options: Any) -> sa.Column[Any]:
    return _column(name, sa.Double(), **options)


def _json(name: str) -> sa.Column[Any]:
    return _column(name, JSONB())


def _time(name: str, **options: Any) -> sa.Column[Any]:
    return _column(name, sa.DateTime(timezone=True), **{"nullable": True, **options})


def _choice(name: str, *values: str) -> sa.Column[Any]:
    kind = sa.Enum(*values, name=name, native_enum=False, create_constraint=True, length=24)
    return _column(name, kind)


def _reference(
    name: str, target: str, *, ondelete: str | None = None, **options: Any
) -> sa.Column[Any]:
    return _column(name, sa.Uuid(), sa.ForeignKey(target, ondelete=ondelete), **options)


def _workspace() -> sa.Column[Any]:
    return _reference("workspace_id", "workspaces.id", ondelete="CASCADE")


def _batch(**options: Any) -> sa.Column[Any]:
    return _reference("batch_id", "batches.id", ondelete="CASCADE", **options)


def _person(name: str) -> sa.Column[Any]:
    return _reference(name, "users.id", ondelete="SET NULL", nullable=True)
