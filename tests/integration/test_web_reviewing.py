"""Reviews of many variants at once, comparing them, and failures with their way out."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask

from app.access import Role
from app.db import Database
from app.models import Review, Workspace
from app.storage import Storage
from tests.factories import make_workspace
from tests.integration.gallery_tools import OUT_OF_MEMORY, job_states, launch, render
from tests.web import Browser, make_member

pytestmark = pytest.mark.usefixtures("weights")


@pytest.fixture
def batch_id(editor: Browser) -> UUID:
    return launch(editor)


@pytest.fixture
def variant_ids(
    editor: Browser, database: Database, storage: Storage, tmp_path: Path, batch_id: UUID
) -> list[UUID]:
    """Six variants, of which the last failed; the editor has the batch open."""
    ids = render(database, storage, tmp_path, batch_id, is_good=lambda ordinal: ordinal < 5)
    editor.get(f"/batches/{batch_id}")
    return ids


def reviews_of(database: Database) -> dict[UUID, tuple[str, str]]:
    with database.system_scope() as session:
        return {item.variant_id: (item.state, item.reason) for item in session.query(Review)}


def test_ticked_variants_are_rejected_with_a_reason(
    editor: Browser, database: Database, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    ticked = [str(variant_ids[0]), str(variant_ids[3]), str(variant_ids[5])]
    form = {"variant": ticked, "state": "rejected", "reason": "logo is cut"}
    page = editor.get(editor.post(f"/batches/{batch_id}/reviews", form).location).text
    # The one that failed is no picture to judge.
    assert "2 variants rejected." in page
    expected = {variant_ids[0]: ("rejected", "logo is cut")}
    expected[variant_ids[3]] = ("rejected", "logo is cut")
    assert reviews_of(database) == expected
    assert "logo is cut" in editor.get(f"/variants/{variant_ids[0]}").text


def test_what_was_reviewed_last_is_taken_back_to_what_it_was(
    editor: Browser, database: Database, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    first, second, third = variant_ids[:3]
    one = {"variant": [str(first)], "state": "rejected", "reason": "too dark"}
    editor.post(f"/batches/{batch_id}/reviews", one)
    three = {"variant": [str(id_) for id_ in (first, second, third)], "state": "approved"}
    page = editor.get(editor.post(f"/batches/{batch_id}/reviews", three).location).text
    assert "3 variants approved." in page
    # Somebody decides on one of them again before the whole is taken back.
    editor.post(f"/variants/{third}/review", {"state": "rejected", "reason": "logo"})
    undone = editor.post(f"/batches/{batch_id}/reviews/undo").location
    assert "2 variants as before." in editor.get(undone).text
    assert reviews_of(database) == {
        first: ("rejected", "too dark"),
        second: ("pending", ""),
        third: ("rejected", "logo"),
    }
    again = editor.post(f"/batches/{batch_id}/reviews/undo").location
    assert "nothing to take back" in editor.get(again).text


def test_all_that_a_filter_shows_is_approved_only_on_demand(
    editor: Browser, database: Database, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    form = {"state": "approved", "value:geography": "Tokyo"}
    assert editor.post(f"/batches/{batch_id}/reviews", form).status_code == 400
    assert reviews_of(database) == {}
    editor.get(f"/batches/{batch_id}")
    editor.post(f"/batches/{batch_id}/reviews?scope=all", form)
    assert set(reviews_of(database)) == {variant_ids[1], variant_ids[4]}


def test_the_control_stands_first_and_the_others_show_what_differs(
    editor: Browser, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    chosen = {"variant": [str(variant_ids[4]), str(variant_ids[1]), str(variant_ids[0])]}
    answer = editor.post(f"/batches/{batch_id}/compare", chosen)
    page = editor.get(answer.location).text
    numbers = re.findall(r">Variant (\d)</a></h2>", page)
    assert numbers == ["1", "2", "5"]
    other = editor.get(f"{answer.location}&control={variant_ids[4]}").text
    assert re.findall(r">Variant (\d)</a></h2>", other) == ["5", "1", "2"]
    assert other.count("data-compared") == 3
    # Variant 2 has the control's place and another backdrop.
    last = other.rpartition("<li")[2]
    assert "a beach" in last
    assert "Tokyo</span>" not in last
    alone = {"variant": [str(variant_ids[0])]}
    assert editor.post(f"/batches/{batch_id}/compare", alone).status_code == 400


def test_failures_lead_to_their_variants_and_only_they_are_tried_again(
    editor: Browser, database: Database, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    page = editor.get(f"/batches/{batch_id}").text
    assert OUT_OF_MEMORY in page
    assert "a worker with more memory" in page
    link = re.search(r'href="([^"]*error=[^"]*)"', page)
    assert link is not None
    narrowed = editor.get(link[1].replace("&amp;", "&")).text
    assert narrowed.count('class="tile ') == 1
    assert f"tile-{variant_ids[5]}" in narrowed
    assert editor.get(f"/batches/{batch_id}?show=waiting").text.count('class="tile ') == 0
    editor.post(f"/batches/{batch_id}/retry")
    assert job_states(database, batch_id) == ["queued"] + ["succeeded"] * 5
    assert editor.get(f"/batches/{batch_id}?show=waiting").text.count('class="tile ') == 1


def test_viewers_look_and_strangers_see_nothing(
    app: Flask, database: Database, workspace: Workspace, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    with database.system_scope() as session:
        other = make_workspace(session)
    form = {"variant": [str(variant_ids[0])], "state": "approved"}
    for place, role, status in ((workspace, Role.VIEWER, 403), (other, Role.OWNER, 404)):
        browser = Browser(app)
        browser.sign_in(make_member(database, place, role))
        browser.get("/")
        assert browser.post(f"/batches/{batch_id}/reviews", form).status_code == status
    assert reviews_of(database) == {}


def test_the_page_of_a_batch_counts_what_was_decided(
    editor: Browser, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    def counts() -> list[str]:
        page = editor.get(f"/batches/{batch_id}").text
        line = page.partition('id="review-counts"')[2].partition("</p>")[0]
        return re.findall(r'<span class="chip[^"]*">([^<]+)<', line)

    finished = len(variant_ids) - 1
    assert counts() == ["0 approved", "0 rejected", f"{finished} to review"]
    editor.post(f"/variants/{variant_ids[0]}/review", {"state": "approved"})
    answer = editor.post(
        f"/variants/{variant_ids[1]}/review",
        {"state": "rejected", "place": "gallery"},
        headers={"HX-Request": "true"},
    )
    assert "1 rejected" in answer.text, "the gallery's numbers follow"
    assert counts() == ["1 approved", "1 rejected", f"{finished - 2} to review"]
    editor.post(f"/variants/{variant_ids[1]}/review", {"state": "pending"})
    assert counts() == ["1 approved", "0 rejected", f"{finished - 1} to review"]


def test_a_variant_leads_to_its_neighbours_and_its_campaign(
    editor: Browser, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    def rels(id_: UUID) -> dict[str, str]:
        page = editor.get(f"/variants/{id_}").text
        return dict(re.findall(r'rel="(prev|next)"[^>]* href="([^"]+)"', page))

    first, second, third = variant_ids[:3]
    assert rels(first) == {"next": f"/variants/{second}"}
    assert rels(second) == {"prev": f"/variants/{first}", "next": f"/variants/{third}"}
    page = editor.get(f"/variants/{first}").text
    breadcrumb = page.partition('aria-label="Breadcrumb"')[2].partition("</nav>")[0]
    assert re.search(r'href="/campaigns/[0-9a-f-]{36}"', breadcrumb)
    assert f'href="/batches/{batch_id}"' in breadcrumb
