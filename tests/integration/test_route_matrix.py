"""Every route of the URL map refuses what its declared kind says; one that declares none fails."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask import Flask
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from app.access import ALLOWED, Action, Role
from app.api.routes import RouteKind
from app.api.v1 import DECLARED
from app.api.v1 import PUBLIC as PUBLIC_OF_API
from app.config import Config
from app.db import Database
from app.models import (
    ApiKey,
    Artifact,
    DeadlinePolicy,
    MissedPolicy,
    OverlapPolicy,
    Quote,
    RenderJob,
    Schedule,
    ScheduleMode,
    Upload,
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookEndpoint,
    WebhookEvent,
    WebhookEventType,
    Workspace,
)
from app.services.specs import BatchSpec
from app.services.table_dialect import Dialect
from app.storage import Storage
from tests.api import Api, make_key
from tests.factories import SETTINGS, make_batch, make_campaign, make_jobs, make_workspace
from tests.route_classes import PAGES
from tests.web import Browser, make_app, make_member

pytestmark = pytest.mark.usefixtures("weights")
SPEC = {"parameters": [], "mode": "cartesian", "settings": SETTINGS}
WORDS = {"verb": "pause", "part": "file", "kind": "csv", "what": "mended", "token": "none"}
VERBS_OF = {"webhooks.act": "ping"}
PROMPT = "a red sneaker"
BODIES: dict[str, Any] = {
    "create_generation": {"prompt": PROMPT},
    "create_campaign": {"name": "n", "prompt": PROMPT},
    "update_campaign": {"name": "n"},
    "set_parameters": {"parameters": []},
    "create_prompt_template": {"text": PROMPT},
    "answer_upload": {"answers": {"a": "b"}},
    "create_previews": {"ordinals": [0]},
    "create_promotion": {},
    "replace_blocked_terms": {"terms": [{"term": "Nike"}]},
    "set_spend_cap": {"spend_cap_micros": 1},
    "set_review": {"state": "approved"},
    "create_webhook_endpoint": {"url": "https://hooks.example.com/"},
    "update_webhook_endpoint": {"description": "d"},
    "rotate_webhook_secret": {},
    "replay_webhook_endpoint": {},
    "update_schedule": {"name": "n"},
    "pause_schedule": {},
}
# Pages that read their form before they ask whether one may send it: 400 does no more than 403.
FORM_FIRST = frozenset({"campaigns.update", "reviewing.create", "variants.rerender"})
# Bodies that name an object themselves.
REFERRING = ("create_batch", "create_quote", "create_reviews", "create_schedule")
TIMING = {"timing": {"kind": "cron", "expression": "0 22 * * *"}, "time_zone": "UTC"}


@dataclass(frozen=True)
class Rows:
    """One object of each kind in a workspace, by the name that routes give its id."""

    workspace: Workspace
    ids: dict[str, UUID]

    def body(self, operation: str) -> Any:
        if operation == "create_reviews":
            return {"variant_ids": [str(self.ids["variant_id"])], "state": "approved"}
        if operation == "create_schedule":
            return {"batch_id": str(self.ids["batch_id"]), **TIMING}
        if operation in REFERRING:
            return {"campaign_id": str(self.ids["campaign_id"])}
        return BODIES.get(operation)


@dataclass(frozen=True)
class Asked:
    """One method of one rule, with what was declared of it."""

    rule: Rule
    method: str
    kind: RouteKind
    action: Action

    @property
    def name(self) -> str:
        return f"{self.method} {self.rule.rule}"

    @property
    def operation(self) -> str | None:
        """The operation's name for a route of the API."""
        blueprint, _, name = self.rule.endpoint.rpartition(".")
        return name if blueprint == "v1" else None

    def path(self, rows: Rows) -> str:
        values: dict[str, Any] = {name: rows.ids.get(name, uuid4()) for name in self.rule.arguments}
        values |= {name: word for name, word in WORDS.items() if name in self.rule.arguments}
        if self.rule.endpoint in VERBS_OF:
            values["verb"] = VERBS_OF[self.rule.endpoint]
        built = self.rule.build(values, append_unknown=False)
        assert built is not None
        return built[1]


@pytest.fixture
def app(config: Config) -> Flask:
    app = make_app(config)
    # What is asked here is who may do what, not how forms are protected.
    app.config["WTF_CSRF_ENABLED"] = False
    return app


@pytest.fixture
def ours(database: Database, workspace: Workspace) -> Rows:
    with database.system_scope() as session:
        return fill(session, workspace)


@pytest.fixture
def theirs(database: Database) -> Rows:
    with database.system_scope() as session:
        return fill(session, make_workspace(session, name="Foreign"))


def fill(session: Session, workspace: Workspace) -> Rows:
    scope = {"workspace_id": workspace.id}
    prompt = f"{PROMPT} of {workspace.name}"
    campaign = make_campaign(session, workspace_id=workspace.id, prompt=prompt, values={})
    hidden = make_campaign(session, workspace_id=workspace.id, prompt=prompt, is_hidden=True)
    batch, single = (
        make_batch(session, campaign=item, spec=SPEC, variant_count=1)
        for item in (campaign, hidden)
    )
    for made in (batch, single):
        [job_id] = make_jobs(session, made, [prompt])
        session.add(
            Quote(**scope, batch_id=made.id, variant_count=1, full_units=1, shared_units=1,
                  rate_micros_per_unit=1, full_cost_micros=1, cost_micros=1, currency="USD",
                  details={})
        )  # fmt: skip
        if made is batch:
            job = session.get_one(RenderJob, job_id)
    files = {name: f"{workspace.id}/{name}" for name in ("storage_key", "poster_key")}
    artifact = Artifact(
        **scope, **files, preview_key="p", variant_key="k", media_type="video/mp4",
        sha256="0" * 64, size_bytes=1, width=1, height=1, num_frames=1, fps=1, profile="exact",
        provenance={},
    )  # fmt: skip
    upload = Upload(
        **scope, campaign_id=campaign.id, filename="a.csv", storage_key="k", sha256="0" * 64,
        size_bytes=1, row_count=1, header=["a"], findings=[],
        dialect=Dialect(encoding="utf-8", delimiter=",").to_dict(),
    )  # fmt: skip
    key = ApiKey(**scope, name=f"key of {workspace.name}", prefix=str(workspace.id)[-12:],
                 key_sha256="0" * 64, role=Role.VIEWER, scopes=[])  # fmt: skip
    endpoint = WebhookEndpoint(
        **scope, url=f"https://{workspace.name.lower()}.example.com/", description="",
        event_types=["batch.completed"], secret_sealed=b"sealed",
    )  # fmt: skip
    event = WebhookEvent(**scope, event_type=WebhookEventType.BATCH_COMPLETED, data={})
    session.add_all([artifact, upload, key, endpoint, event])
    session.flush()
    delivery = WebhookDelivery(
        **scope, endpoint_id=endpoint.id, event_id=event.id, next_attempt_at=func.now(),
        state=WebhookDeliveryState.PENDING,
    )  # fmt: skip
    session.add(delivery)
    session.flush()
    schedule = Schedule(
        **scope, campaign_id=campaign.id, batch_id=batch.id, name=f"of {workspace.name}",
        timing=TIMING["timing"], time_zone="UTC", mode=ScheduleMode.REPEAT, has_fresh_seeds=True,
        deadline_policy=DeadlinePolicy.RUN_ON, missed_policy=MissedPolicy.SKIP,
        overlap_policy=OverlapPolicy.SKIP,
    )  # fmt: skip
    session.add(schedule)
    session.flush()
    quote = session.scalars(select(Quote).where(Quote.batch_id == batch.id)).one()
    ids = {
        "campaign_id": campaign.id,
        "batch_id": batch.id,
        "generation_id": single.id,
        "variant_id": job.variant_id,
        "artifact_id": artifact.id,
        "upload_id": upload.id,
        "quote_id": quote.id,
        "key_id": key.id,
        "endpoint_id": endpoint.id,
        "delivery_id": delivery.id,
        "schedule_id": schedule.id,
    }
    return Rows(workspace, ids)


def every_route(app: Flask) -> Iterator[Asked]:
    api = {f"v1.{item.operation_id}": item.route for item in DECLARED}
    for rule in app.url_map.iter_rules():
        if rule.endpoint in api:
            kind, action = api[rule.endpoint].kind, api[rule.endpoint].action
        elif rule.endpoint.removeprefix("v1.") in PUBLIC_OF_API:
            kind, action = RouteKind.PUBLIC, Action.VIEW
        else:
            assert rule.endpoint in PAGES, f"declare {rule.endpoint} in tests/route_classes.py"
            kind, action = PAGES[rule.endpoint]
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield Asked(rule, method, kind, action)


def ask(app: Flask, asked: Asked, rows: Rows, *, who: Browser, key: str | None) -> TestResponse:
    """Send the request: to a page as `who`, to the API with `key`."""
    path = asked.path(rows)
    if asked.operation is None:
        return who.client.open(path, method=asked.method, data={"state": "approved"})
    api = Api(app, key)
    if asked.operation == "create_upload":
        return api.post(path.removeprefix("/v1"), data={"file": (io.BytesIO(b"a\nb\n"), "a.csv")})
    body = rows.body(asked.operation)
    options = {} if body is None else {"json": body}
    return api.send(asked.method, path.removeprefix("/v1"), **options)


def person(app: Flask, database: Database, workspace: Workspace, role: Role) -> Browser:
    browser = Browser(app)
    browser.sign_in(make_member(database, workspace, role))
    return browser


def test_every_route_declares_its_kind(app: Flask) -> None:
    assert BatchSpec.model_validate(SPEC)
    assert len({asked.name for asked in every_route(app)}) > 90


def test_without_credentials_nothing_is_shown_or_done(app: Flask, ours: Rows) -> None:
    wrong = {}
    for asked in every_route(app):
        if asked.kind is RouteKind.PUBLIC:
            continue
        response = ask(app, asked, ours, who=Browser(app), key=None)
        is_refused = response.status_code == 401 or (
            asked.operation is None
            and response.status_code == 302
            and (response.location or "").startswith("/login")
        )
        if not is_refused:
            wrong[asked.name] = response.status
    assert wrong == {}


def test_an_object_of_another_workspace_does_not_exist(
    app: Flask, database: Database, ours: Rows, theirs: Rows
) -> None:
    owner = person(app, database, ours.workspace, Role.OWNER)
    key = make_key(database, ours.workspace)
    wrong = {}
    for asked in every_route(app):
        if asked.kind is RouteKind.OBJECT or asked.operation in REFERRING:
            response = ask(app, asked, theirs, who=owner, key=key)
            if response.status_code != 404:
                wrong[asked.name] = response.status
    assert wrong == {}


def test_ones_own_objects_are_found(
    app: Flask, database: Database, storage: Storage, ours: Rows, tmp_path: Path
) -> None:
    """So that the 404 of the test before are about whose they are."""
    owner = person(app, database, ours.workspace, Role.OWNER)
    key = make_key(database, ours.workspace)
    wrong = {}
    (tmp_path / "rows.csv").write_bytes(b"a\n1\n")
    storage.put_file("k", tmp_path / "rows.csv", media_type="text/csv")
    # The artifact's files are not in the store.
    without_file = {"media.show"}
    for asked in every_route(app):
        is_asked = asked.method == "GET" and asked.kind is RouteKind.OBJECT
        if is_asked and asked.rule.endpoint not in without_file:
            response = ask(app, asked, ours, who=owner, key=key)
            if response.status_code == 404:
                wrong[asked.name] = response.status
    assert wrong == {}


def test_a_list_holds_rows_of_the_own_workspace_alone(
    app: Flask, database: Database, ours: Rows, theirs: Rows
) -> None:
    owner = person(app, database, ours.workspace, Role.OWNER)
    key = make_key(database, ours.workspace)
    wrong, found = {}, set()
    for asked in every_route(app):
        if asked.kind is RouteKind.COLLECTION:
            response = ask(app, asked, ours, who=owner, key=key)
            marks = [*map(str, theirs.ids.values()), "Foreign", "foreign.example"]
            leaked = [mark for mark in marks if mark in response.text]
            if response.status_code != 200 or leaked:
                wrong[asked.name] = (response.status, leaked)
            found |= {name for name, row_id in ours.ids.items() if str(row_id) in response.text}
    assert wrong == {}
    listed = {"campaign_id", "batch_id", "generation_id", "key_id", "endpoint_id", "delivery_id"}
    assert listed | {"schedule_id"} <= found


def test_a_role_or_a_scope_that_is_too_low_is_refused(
    app: Flask, database: Database, ours: Rows
) -> None:
    people = {role: person(app, database, ours.workspace, role) for role in Role}
    role_keys = {role: make_key(database, ours.workspace, role=role) for role in Role}
    scope_keys = {
        action: make_key(database, ours.workspace, scopes=[a for a in Action if a is not action])
        for action in Action
    }
    wrong = {}
    for asked in every_route(app):
        if asked.kind is RouteKind.PUBLIC:
            continue
        too_low = [role for role in Role if asked.action not in ALLOWED[role]]
        answers = {
            role: ask(app, asked, ours, who=people[role], key=role_keys[role]) for role in too_low
        }
        if asked.operation is not None:
            low = scope_keys[asked.action]
            answers["scope"] = ask(app, asked, ours, who=Browser(app), key=low)
        allowed = {400, 403} if asked.rule.endpoint in FORM_FIRST else {403}
        for who, response in answers.items():
            if response.status_code not in allowed:
                wrong[f"{asked.name} as {who}"] = response.status
    assert wrong == {}
