"""What came out of a batch: videos, failures and reviews, over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask

from app.access import Role
from app.config import Config
from app.db import Database
from app.models import Artifact, Batch, RenderJob, Variant, Workspace
from app.services import expanding, leases
from app.services.leases import NewUsage
from app.storage import Storage
from tests.factories import make_artifact_files, make_workspace
from tests.integration.test_web_campaigns import create_batch
from tests.web import Browser, make_app, make_member

pytestmark = pytest.mark.usefixtures("weights")

VIDEO = bytes(range(256)) * 40
POSTER = b"RIFF....WEBP"


@pytest.fixture
def batch(editor: Browser, database: Database, storage: Storage, tmp_path: Path) -> str:
    """The page of a batch of six: the first variant has its video, the others failed."""
    path = create_batch(editor)
    editor.get(path)
    editor.post(f"{path}/launch")
    for name, content in (("v.mp4", VIDEO), ("v.webp", POSTER), ("v.anim.webp", POSTER)):
        file = tmp_path / name
        file.write_bytes(content)
        storage.put_file(f"media/{name}", file, media_type="application/octet-stream")
    artifact = make_artifact_files(
        storage_key="media/v.mp4", poster_key="media/v.webp", preview_key="media/v.anim.webp"
    )
    with database.system_scope() as session:
        expanding.expand_chunk(session, session.query(Batch.id).scalar())
    with database.system_scope() as session:
        while group := leases.claim(session, worker="worker"):
            for job in group.jobs:
                ordinal = session.get_one(Variant, job.variant_id).ordinal
                if ordinal == 0:
                    usage = NewUsage(units=60.0, render_s=2.0)
                    assert leases.finish_succeeded(
                        session,
                        job_id=job.job_id,
                        token=group.token,
                        artifact=artifact,
                        usage=usage,
                    )
                    continue
                message = "The picture came out black." if ordinal == 1 else "Out of memory."
                leases.finish_failed(
                    session,
                    job_id=job.job_id,
                    token=group.token,
                    code="render",
                    message=message,
                    is_retryable=False,
                )
    return path


def artifact_path(database: Database, part: str) -> str:
    with database.system_scope() as session:
        return f"/media/{session.query(Artifact.id).scalar()}/{part}"


def test_videos_are_sent_in_ranges_and_kept_by_the_browser(
    editor: Browser, batch: str, database: Database
) -> None:
    path = artifact_path(database, "file")
    whole = editor.get(path)
    assert whole.data == VIDEO
    assert whole.mimetype == "video/mp4"
    assert "immutable" in whole.headers["Cache-Control"]
    part = editor.get(path, headers={"Range": "bytes=100-199"})
    assert part.status_code == 206
    assert part.data == VIDEO[100:200]
    assert part.headers["Content-Range"] == f"bytes 100-199/{len(VIDEO)}"
    assert editor.get(path, headers={"Range": "bytes=999999-"}).status_code == 416
    again = editor.get(path, headers={"If-None-Match": whole.headers["ETag"]})
    assert again.status_code == 304
    named = editor.get(f"{path}?download=variant-1.mp4")
    assert "variant-1.mp4" in named.headers["Content-Disposition"]
    assert editor.get(artifact_path(database, "poster")).mimetype == "image/webp"
    assert editor.get(artifact_path(database, "secret")).status_code == 404


def test_media_of_another_workspace_are_not_there(
    app: Flask, batch: str, database: Database
) -> None:
    with database.system_scope() as session:
        other = make_workspace(session)
    stranger = Browser(app)
    stranger.sign_in(make_member(database, other, Role.OWNER))
    assert stranger.get(artifact_path(database, "file")).status_code == 404
    assert Browser(app).get(artifact_path(database, "file")).status_code == 302


def test_media_in_a_bucket_are_handed_out_by_a_signed_redirect(
    config: Config,
    editor: Browser,
    batch: str,
    database: Database,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    bucket = replace(
        config, storage_url="s3://renders/prod", s3_endpoint_url="https://store.example"
    )
    browser = Browser(make_app(bucket))
    browser.sign_in(make_member(database, workspace, Role.VIEWER))
    response = browser.get(artifact_path(database, "file"))
    assert response.status_code == 302
    assert response.location.startswith("https://store.example/")
    assert "Signature" in response.location
    # The page's policy lets the browser follow.
    policy = browser.get("/").headers["Content-Security-Policy"]
    assert "media-src 'self' https://store.example" in policy


def test_failures_are_grouped_by_reason_and_can_be_tried_again(
    editor: Browser, batch: str, database: Database
) -> None:
    page = editor.get(batch).text
    assert "100%" in page
    assert "4 variants:</strong> Out of memory." in page
    assert "1 variant:</strong> The picture came out black." in page
    assert editor.get(f"{batch}?show=failed").text.count('class="tile ') == 5
    # Nothing moves any more, so nothing is asked for again.
    assert "every 2s" not in page
    editor.post(f"{batch}/retry")
    running = editor.get(batch).text
    assert "What went wrong" not in running
    assert 'hx-trigger="every 2s"' in running
    with database.system_scope() as session:
        states = sorted(job.state for job in session.query(RenderJob))
    assert states == ["queued"] * 5 + ["succeeded"]


def test_a_variant_page_tells_how_it_was_made(
    editor: Browser, batch: str, database: Database
) -> None:
    with database.system_scope() as session:
        variant_id = session.query(Variant.id).filter_by(ordinal=0).scalar()
    page = editor.get(f"/variants/{variant_id}").text
    assert '<span class="slot kind--geography" title="geography">Paris</span>' in page
    assert "SHA-256" in page
    assert "Engine version" in page
    assert 'type="video/mp4"' in page


def test_reviews_are_given_and_taken_back(editor: Browser, batch: str, database: Database) -> None:
    with database.system_scope() as session:
        variant_id = session.query(Variant.id).filter_by(ordinal=0).scalar()
    page = editor.get(f"/variants/{variant_id}/lightbox")
    assert 'value="approved"' in page.text
    answer = editor.post(
        f"/variants/{variant_id}/review", {"state": "approved"}, headers={"HX-Request": "true"}
    )
    assert 'aria-pressed="true"' in answer.text
    # The tile behind the lightbox comes along.
    assert f'id="tile-{variant_id}"' in answer.text
    assert editor.get(f"{batch}?show=approved").text.count('class="tile ') == 1
    editor.get(f"/variants/{variant_id}")
    assert editor.post(f"/variants/{variant_id}/review", {"state": "pending"}).status_code == 302
    assert "Nothing matches" in editor.get(f"{batch}?show=approved").text
    assert editor.post(f"/variants/{variant_id}/review", {"state": "lovely"}).status_code == 400
