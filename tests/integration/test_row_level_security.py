"""A session sees the rows of its own workspace alone, and without a workspace none at all."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from app.access import Actor, Role
from app.config import APP_ROLE, SYSTEM_ROLE
from app.db import Database
from app.models import (
    ApiKey,
    Artifact,
    Attempt,
    Base,
    Batch,
    BatchCounter,
    BatchDelta,
    BlockedTerm,
    Campaign,
    DeadlinePolicy,
    DraftState,
    FireOutcome,
    IdempotencyKey,
    JobPurpose,
    JobState,
    MissedPolicy,
    OverlapPolicy,
    Quote,
    RenderJob,
    RenderState,
    Review,
    ReviewState,
    Schedule,
    ScheduleFire,
    ScheduleMode,
    ShareLink,
    Upload,
    Usage,
    User,
    Variant,
    WebhookAttempt,
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookEndpoint,
    WebhookEvent,
    WebhookEventType,
    WebhookVariantEnd,
    WorkerProgress,
    WorkPhase,
    Workspace,
)
from tests.factories import SETTINGS, make_batch, make_campaign, make_user, make_workspace

SCOPED_TABLES = sorted(
    table.name for table in Base.metadata.tables.values() if "workspace_id" in table.columns
)


def fill(session: Session, workspace: Workspace) -> None:
    """One row in every table of the workspace."""
    scope = {"workspace_id": workspace.id}
    user = make_user(session, workspace=workspace)
    campaign = make_campaign(session, workspace_id=workspace.id)
    batch = make_batch(session, campaign=campaign)
    job = fill_variant(session, batch)
    session.add_all(
        [
            ApiKey(**scope, name="key", prefix=str(user.id)[-12:], key_sha256="0" * 64,
                   role=Role.VIEWER, scopes=[]),
            Upload(**scope, campaign_id=campaign.id, filename="a.csv", storage_key="k",
                   sha256="0" * 64, size_bytes=1, row_count=1, header=[], dialect={}, findings=[]),
            IdempotencyKey(**scope, key="k", fingerprint="0" * 64, status=201, body_sealed=b"{}",
                           expires_at=func.now()),
            Quote(**scope, batch_id=batch.id, variant_count=1, full_units=1, shared_units=1,
                  rate_micros_per_unit=1, full_cost_micros=1, cost_micros=1, currency="USD",
                  details={}),
            BatchCounter(**scope, batch_id=batch.id, purpose="final", state="queued", count=1),
            BatchDelta(**scope, batch_id=batch.id, purpose="final", state="queued", count=1),
            WorkerProgress(**scope, worker=f"w-{batch.id}", batch_id=batch.id,
                           purpose=JobPurpose.FINAL, lease_token=1, job_count=1, group_count=1,
                           phase=WorkPhase.RENDERING, steps_done=1, steps_planned=2),
            Attempt(**scope, job_id=job.id, lease_token=1, number=1, worker="w"),
            Usage(**scope, batch_id=batch.id, job_id=job.id, units=1, cost_micros=1, render_s=1,
                  is_reused=False),
            Review(**scope, variant_id=job.variant_id, state=ReviewState.PENDING,
                   updated_at=func.now()),
            RenderState(**scope, variant_id=job.variant_id, storage_key="k", step=1, size_bytes=1,
                        expires_at=func.now()),
            DraftState(**scope, variant_id=job.variant_id, variant_key="k", step=1, size_bytes=1,
                       storage_key=f"{job.id}", expires_at=func.now()),
            BlockedTerm(**scope, term="Acme", key="acme", position=0),
            ShareLink(**scope, batch_id=batch.id, token_sha256=batch.id.hex * 2, name="Acme",
                      can_review=False, expires_at=func.now()),
        ]
    )  # fmt: skip
    session.flush()
    fill_webhooks(session, job)
    fill_schedules(session, batch)


def fill_webhooks(session: Session, job: RenderJob) -> None:
    scope = {"workspace_id": job.workspace_id}
    endpoint = WebhookEndpoint(
        **scope, url="https://example.com", event_types=[], secret_sealed=b"x"
    )
    event = WebhookEvent(**scope, event_type=WebhookEventType.BATCH_COMPLETED, data={})
    session.add_all([endpoint, event])
    session.flush()
    delivery = WebhookDelivery(
        **scope, endpoint_id=endpoint.id, event_id=event.id,
        state=WebhookDeliveryState.PENDING, next_attempt_at=func.now(),
    )  # fmt: skip
    session.add(delivery)
    session.flush()
    session.add_all(
        [
            WebhookAttempt(**scope, delivery_id=delivery.id, number=1, started_at=func.now()),
            WebhookVariantEnd(**scope, batch_id=job.batch_id, job_id=job.id),
        ]
    )
    session.flush()


def fill_schedules(session: Session, batch: Batch) -> None:
    scope = {"workspace_id": batch.workspace_id}
    schedule = Schedule(
        **scope, campaign_id=batch.campaign_id, batch_id=batch.id, name="n", timing={},
        mode=ScheduleMode.REPEAT, has_fresh_seeds=True, time_zone="UTC",
        deadline_policy=DeadlinePolicy.RUN_ON, missed_policy=MissedPolicy.SKIP,
        overlap_policy=OverlapPolicy.SKIP,
    )  # fmt: skip
    session.add(schedule)
    session.flush()
    session.add(
        ScheduleFire(**scope, schedule_id=schedule.id, time_zone="UTC", due_at=func.now(),
                     outcome=FireOutcome.LAUNCHED)
    )  # fmt: skip
    session.flush()


def fill_variant(session: Session, batch: Batch) -> RenderJob:
    scope = {"workspace_id": batch.workspace_id}
    variant = Variant(
        **scope, batch_id=batch.id, ordinal=0, values={}, passthrough={}, prompt="p",
        negative_prompt="", slots=[], seed=1, settings=SETTINGS, variant_key="0" * 64,
    )  # fmt: skip
    artifact = Artifact(
        **scope, variant_key="0" * 64, media_type="video/mp4", storage_key="k", poster_key="k",
        preview_key="k", sha256="0" * 64, size_bytes=1, width=1, height=1, num_frames=1, fps=1,
        profile="exact", provenance={},
    )  # fmt: skip
    session.add_all([variant, artifact])
    session.flush()
    job = RenderJob(
        **scope, batch_id=batch.id, variant_id=variant.id, purpose=JobPurpose.FINAL,
        state=JobState.SUCCEEDED, affinity_key="a", group_key="g", plan_order=0, work_units=1,
        shared_units=1, artifact_id=artifact.id,
    )  # fmt: skip
    session.add(job)
    session.flush()
    return job


@pytest.fixture
def two_workspaces(database: Database) -> tuple[Workspace, Workspace]:
    with database.system_scope() as session:
        ours, theirs = make_workspace(session), make_workspace(session)
        fill(session, ours)
        fill(session, theirs)
    return ours, theirs


def rows_by_table(session: Session, *, without: Workspace | None = None) -> dict[str, int]:
    counts = {}
    for name in SCOPED_TABLES:
        table = Base.metadata.tables[name]
        query = select(func.count()).select_from(table)
        if without is not None:
            query = query.where(table.c.workspace_id != without.id)
        counts[name] = session.scalar(query) or 0
    return counts


def test_the_web_connection_is_neither_owner_nor_superuser(database: Database) -> None:
    with Session(database.app_engine) as session:
        role = session.execute(
            text("SELECT rolname, rolsuper, rolbypassrls, rolcreaterole FROM pg_roles"
                 " WHERE rolname = current_user")
        ).one()  # fmt: skip
        owned = session.scalar(
            text("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
                 " AND pg_has_role(current_user, tableowner, 'MEMBER')")
        )  # fmt: skip
    assert tuple(role) == (APP_ROLE, False, False, False)
    assert owned == 0


def test_the_system_connection_is_no_superuser_and_owns_nothing(database: Database) -> None:
    with database.system_scope() as session:
        role = session.execute(
            text("SELECT rolname, rolsuper, rolbypassrls FROM pg_roles"
                 " WHERE rolname = current_user")
        ).one()  # fmt: skip
    assert tuple(role) == (SYSTEM_ROLE, False, True)


def test_every_table_of_a_workspace_is_under_forced_row_level_security(database: Database) -> None:
    with database.system_scope() as session:
        protected = set(
            session.scalars(
                text("SELECT relname FROM pg_class JOIN pg_policy ON polrelid = pg_class.oid"
                     " WHERE relrowsecurity AND relforcerowsecurity")
            )
        )  # fmt: skip
    assert protected == {*SCOPED_TABLES, "workspaces", "users"}


def test_without_a_workspace_no_row_is_visible(
    database: Database, two_workspaces: tuple[Workspace, Workspace]
) -> None:
    with database.system_scope() as session:
        assert min(rows_by_table(session).values()) >= 2
    with Session(database.app_engine) as session:
        assert rows_by_table(session) == dict.fromkeys(SCOPED_TABLES, 0)
        assert session.scalar(select(func.count(Workspace.id))) == 0
        assert session.scalar(select(func.count(User.id))) == 0


def test_without_a_workspace_nothing_can_be_inserted(
    database: Database, two_workspaces: tuple[Workspace, Workspace]
) -> None:
    ours, _ = two_workspaces
    with (
        Session(database.app_engine) as session,
        pytest.raises(ProgrammingError, match="row-level security"),
    ):
        session.add(Campaign(workspace_id=ours.id, name="n", settings={}))
        session.flush()


def test_a_foreign_workspace_is_invisible(
    database: Database, two_workspaces: tuple[Workspace, Workspace]
) -> None:
    ours, _ = two_workspaces
    with database.workspace_scope(Actor(workspace_id=ours.id, role=Role.OWNER)) as session:
        assert min(rows_by_table(session).values()) >= 1
        assert rows_by_table(session, without=ours) == dict.fromkeys(SCOPED_TABLES, 0)
        assert list(session.scalars(select(Workspace.id))) == [ours.id]
        assert session.scalar(select(func.count(User.id))) == 1


def test_a_row_cannot_be_written_into_a_foreign_workspace(
    database: Database, two_workspaces: tuple[Workspace, Workspace]
) -> None:
    ours, theirs = two_workspaces
    actor = Actor(workspace_id=ours.id, role=Role.OWNER)
    with (
        pytest.raises(ProgrammingError, match="row-level security"),
        database.workspace_scope(actor) as session,
    ):
        session.add(Campaign(workspace_id=theirs.id, name="n", settings={}))
        session.flush()


def test_the_workspace_is_forgotten_with_the_transaction(
    database: Database, two_workspaces: tuple[Workspace, Workspace]
) -> None:
    ours, _ = two_workspaces
    with database.app_engine.connect() as connection, Session(connection) as session:
        session.execute(
            text("SELECT set_config('adloom.workspace_id', :id, true)"), {"id": str(ours.id)}
        )
        assert session.scalar(select(func.count(Campaign.id))) == 1
        session.commit()
        assert session.scalar(select(func.count(Campaign.id))) == 0


@pytest.mark.parametrize(
    "query",
    [
        "SELECT password_hash FROM users",
        "UPDATE users SET name = 'x'",
        "INSERT INTO usage DEFAULT VALUES",
        "DELETE FROM artifacts",
        "UPDATE batch_counters SET count = 0",
        "TRUNCATE campaigns",
        "SELECT nextval('lease_tokens')",
        "INSERT INTO webhook_attempts DEFAULT VALUES",
        "UPDATE webhook_events SET data = '{}'",
        "DELETE FROM schedules",
    ],
)
def test_the_web_connection_may_not(database: Database, workspace: Workspace, query: str) -> None:
    actor = Actor(workspace_id=workspace.id, role=Role.OWNER)
    with (
        pytest.raises(ProgrammingError, match="permission denied"),
        database.workspace_scope(actor) as session,
    ):
        session.execute(text(query))
