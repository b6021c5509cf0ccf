"""Share links over HTTP: what people without an account see and do, and when that ends."""

from __future__ import annotations

import logging
import re
from dataclasses import asdict
from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import text

from app.access import Role
from app.db import Database
from app.models import Artifact, Review, ShareLink, Workspace
from app.storage import Storage
from tests.factories import make_artifact_files, make_workspace
from tests.integration.gallery_tools import launch, render, video_of
from tests.web import Browser, make_member

pytestmark = pytest.mark.usefixtures("weights")

LINK = re.compile(r'value="https?://[^"/]+(/r/[\w-]{43})"')


@pytest.fixture
def batch_id(editor: Browser) -> UUID:
    return launch(editor)


@pytest.fixture
def variant_ids(database: Database, storage: Storage, tmp_path: Path, batch_id: UUID) -> list[UUID]:
    """Six variants, of which the last failed."""
    return render(database, storage, tmp_path, batch_id, is_good=lambda ordinal: ordinal < 5)


def share(editor: Browser, batch_id: UUID, **form: str) -> str:
    editor.get(f"/batches/{batch_id}/share")
    answer = editor.post(f"/batches/{batch_id}/share", {"name": "Acme", "days": "7"} | form)
    found = LINK.search(answer.text)
    assert found is not None, answer.text
    return found[1]


def test_a_link_shows_what_is_finished_and_no_more(
    app: Flask,
    editor: Browser,
    database: Database,
    batch_id: UUID,
    variant_ids: list[UUID],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = share(editor, batch_id)
    outside = Browser(app)
    with caplog.at_level(logging.INFO, "app.request"):
        answer = outside.get(path)
    assert answer.headers["X-Robots-Tag"] == "noindex, nofollow"
    assert answer.text.count("<video") == 5
    assert "Approve" not in answer.text
    # The token opens the batch, so it stands in no log.
    assert path not in caplog.text
    assert "/r/<token>" in caplog.text
    file = re.search(rf'src="({path}/media/[^"]+/file)"', answer.text)
    assert file is not None
    assert outside.get(file[1]).data == video_of(0)
    with database.system_scope() as session:
        other = make_workspace(session)
        values = asdict(make_artifact_files()) | {"variant_key": "0" * 64}
        foreign = Artifact(workspace_id=other.id, **values)
        session.add(foreign)
        session.flush()
    assert outside.get(f"{path}/media/{foreign.id}/file").status_code == 404
    assert outside.get(f"/batches/{batch_id}").status_code == 302
    denied = outside.post(f"{path}/reviews/{variant_ids[0]}", {"state": "approved"})
    assert denied.status_code in (400, 403)
    with database.system_scope() as session:
        assert session.query(Review).count() == 0


def test_a_reviewer_without_an_account_approves_under_the_name_of_the_link(
    app: Flask, editor: Browser, database: Database, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    path = share(editor, batch_id, can_review="1")
    outside = Browser(app)
    outside.get(path)
    form = {"state": "rejected", "reason": "wrong shoe"}
    answer = outside.post(f"{path}/reviews/{variant_ids[1]}", form)
    assert answer.status_code == 302, answer.text
    with database.system_scope() as session:
        review = session.query(Review).one()
        assert review.share_link_id == session.query(ShareLink.id).scalar()
    assert (review.state, review.reason, review.reviewed_by) == ("rejected", "wrong shoe", None)
    page = editor.get(f"/variants/{variant_ids[1]}").text
    assert "wrong shoe" in page
    assert "by Acme" in page
    assert outside.post(f"{path}/reviews/{batch_id}", form).status_code == 404


def test_what_was_rejected_is_left_out_but_for_those_who_rejected_it(
    app: Flask, editor: Browser, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    path, reviewing = share(editor, batch_id), share(editor, batch_id, can_review="1")
    editor.get(f"/variants/{variant_ids[0]}")
    editor.post(f"/variants/{variant_ids[0]}/review", {"state": "rejected"})
    editor.post(f"/variants/{variant_ids[2]}/review", {"state": "approved"})
    reviewer = Browser(app)
    reviewer.get(reviewing)
    reviewer.post(f"{reviewing}/reviews/{variant_ids[1]}", {"state": "rejected"})
    shown, shown_to_reviewer = Browser(app).get(path).text, reviewer.get(reviewing).text
    assert (shown.count("<video"), shown_to_reviewer.count("<video")) == (3, 4)
    assert f"variant-{variant_ids[1]}" not in shown
    assert f"variant-{variant_ids[1]}" in shown_to_reviewer, "they can still take it back"
    form = " ".join(editor.get(f"/batches/{batch_id}/share").text.split())
    assert "Shows 3 finished variants now and leaves out 2 rejected ones" in form


def test_a_link_ends_when_it_is_taken_back_and_when_its_time_is_over(
    app: Flask, editor: Browser, database: Database, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    revoked, expired = share(editor, batch_id), share(editor, batch_id, name="Globex")
    with database.system_scope() as session:
        link_id = session.query(ShareLink.id).filter_by(name="Acme").scalar()
        session.execute(text("UPDATE share_links SET expires_at = now() WHERE name = 'Globex'"))
    editor.get(f"/batches/{batch_id}/share")
    editor.post(f"/batches/{batch_id}/share/{link_id}/revoke")
    assert "Acme" not in editor.get(f"/batches/{batch_id}/share").text
    for path in (revoked, expired):
        answer = Browser(app).get(path)
        assert answer.status_code == 404
        assert "expired or was taken back" in answer.text
        assert "All campaigns" not in answer.text, "outsiders have none"
    assert "All campaigns" in editor.get("/campaigns/nowhere").text


def test_guessing_tokens_is_slowed_down(app: Flask, editor: Browser, batch_id: UUID) -> None:
    path = share(editor, batch_id)
    outside = Browser(app)
    statuses = [outside.get(f"/r/{'x' * 43}").status_code for _ in range(9)]
    assert statuses == [404] * 8 + [429]
    assert outside.get(path).status_code == 429


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"name": " "}, "Say whom the link is for"),
        ({"days": "91"}, "1 to 90 days"),
        ({"days": "soon"}, "1 to 90 days"),
    ],
)
def test_a_link_needs_a_name_and_an_end(
    editor: Browser, database: Database, batch_id: UUID, form: dict[str, str], message: str
) -> None:
    editor.get(f"/batches/{batch_id}/share")
    answer = editor.post(f"/batches/{batch_id}/share", {"name": "Acme", "days": "7"} | form)
    assert answer.status_code == 400
    assert message in answer.text
    with database.system_scope() as session:
        assert session.query(ShareLink).count() == 0


def test_viewers_share_nothing(
    app: Flask, database: Database, workspace: Workspace, batch_id: UUID
) -> None:
    viewer = Browser(app)
    viewer.sign_in(make_member(database, workspace, Role.VIEWER))
    viewer.get("/")
    assert viewer.get(f"/batches/{batch_id}/share").status_code == 403
    form = {"name": "Acme", "days": "7"}
    assert viewer.post(f"/batches/{batch_id}/share", form).status_code == 403
