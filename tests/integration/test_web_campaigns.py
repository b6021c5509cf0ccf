"""Campaigns, uploads and batches as people handle them, over HTTP on the real database."""

from __future__ import annotations

import io
import re
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import update

from app.access import Actor, Role
from app.db import Database
from app.models import Batch, Campaign, Parameter, Upload, Workspace
from app.services import expanding
from tests.factories import make_batch, make_campaign, make_workspace
from tests.web import Browser, make_member

pytestmark = pytest.mark.usefixtures("weights")

FORM: dict[str, Any] = {
    "name": "Sneaker cities",
    "prompt": "a red sneaker on {{ backdrop }}, {{ geography }}",
    "parameter": ["backdrop", "geography"],
    "kind:backdrop": "backdrop",
    "values:backdrop": "a beach\r\na forest\r\n",
    "kind:geography": "geography",
    "values:geography": "Paris\nTokyo\nOslo",
    "mode": "cartesian",
    "model_id": "adloom-tiny",
    "size": "16:9",
    "task": "t2v",
    "profile": "exact",
    "seed": "7",
    "takes": "1",
}


@pytest.fixture
def viewer(app: Flask, database: Database, workspace: Workspace) -> Browser:
    browser = Browser(app)
    browser.sign_in(make_member(database, workspace, Role.VIEWER))
    browser.get("/")
    return browser


def count(database: Database, model: type[Any]) -> int:
    with database.system_scope() as session:
        return session.query(model).count()


def create_batch(editor: Browser, **changes: Any) -> str:
    """The path of a new batch's page, made through the form."""
    response = editor.post("/campaigns/new", FORM | {"then": "quote"} | changes)
    assert response.status_code == 302, response.text
    return response.location


def test_a_campaign_leads_to_a_quote_that_counts_its_variants(editor: Browser) -> None:
    page = editor.get(create_batch(editor)).text
    assert "for 6 variants" in page
    assert "Launch 6 renders" in page
    # The samples are prompts with their slots coloured by kind.
    assert '<span class="slot kind--backdrop" title="backdrop">a beach</span>' in page
    assert "$0.00<" not in page.split("headline-figure")[1].split("</p>")[0]


def test_saving_shows_the_campaign_with_its_values(editor: Browser, database: Database) -> None:
    saved = editor.post("/campaigns/new", FORM | {"then": "save"})
    page = editor.get(saved.location).text
    assert "Sneaker cities" in page
    assert "Oslo" in page
    assert "No batch yet" in page
    with database.system_scope() as session:
        values = {item.name: item.values for item in session.query(Parameter)}
    assert values == {"backdrop": ["a beach", "a forest"], "geography": ["Paris", "Tokyo", "Oslo"]}


def test_editing_keeps_what_was_typed_and_changes_the_next_batch(editor: Browser) -> None:
    campaign = editor.post("/campaigns/new", FORM | {"then": "save"}).location
    form = editor.get(f"{campaign}/edit").text
    assert "a beach\na forest</textarea>" in form
    editor.post(f"{campaign}/edit", FORM | {"values:geography": "Rome", "then": "save"})
    batch = editor.post(f"{campaign}/batches").location
    assert "for 2 variants" in editor.get(batch).text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, "Give the campaign a name"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "{% for x in y %}{{ x }}{% endfor %}"}, "for"),
        ({"values:geography": ""}, "no value is given"),
        ({"values:geography": "x" * 2_001}, "geography, value 1: this value has 2,001 characters"),
        ({"size": "7:3"}, "has no format"),
        ({"seed": "-1"}, "The seed: enter a whole number"),
        ({"takes": "5000"}, "Takes: enter a whole number, from 1 to 100"),
        ({"mode": "sampled", "sample_size": ""}, "How many to pick"),
        ({"mode": "zip"}, "every parameter needs as many values"),
        ({"values:geography": "\n".join(map(str, range(6000)))}, "this workspace allows 10,000"),
    ],
)
def test_a_form_that_cannot_be_used_says_why_and_leaves_nothing_behind(
    editor: Browser, database: Database, changes: dict[str, str], message: str
) -> None:
    response = editor.post("/campaigns/new", FORM | {"then": "quote"} | changes)
    assert response.status_code in (400, 422)
    assert message in response.text
    assert "Nothing was saved yet" in response.text
    # What was typed is still in the form.
    assert "a beach\na forest" in response.text
    assert count(database, Campaign) == 0
    assert count(database, Batch) == 0


def test_the_preview_shows_count_samples_and_cards_of_new_placeholders(editor: Browser) -> None:
    new = FORM | {"prompt": FORM["prompt"] + " for {{ audience }}"}
    response = editor.post("/campaigns/preview", new)
    assert "Still without values: audience." in response.text
    assert 'hx-swap-oob="true"' in response.text
    assert 'name="values:audience"' in response.text
    # The built-in model's own words are offered.
    assert 'data-preset="young runners"' in response.text
    complete = editor.post("/campaigns/preview", FORM)
    assert re.search(r'headline-figure">6<', complete.text)
    assert "2 backdrop × 3 geography" in complete.text
    # The cards are left alone while only their values change.
    assert 'id="parameters"' not in complete.text


def test_the_preview_says_at_once_that_there_are_too_many_variants(editor: Browser) -> None:
    many = FORM | {"values:geography": "\n".join(map(str, range(6000)))}
    live = editor.post("/campaigns/preview", many).text
    assert 'headline-figure--over">12,000<' in live
    told = "These values give 12,000 variants, and this workspace allows 10,000 per batch."
    assert live.count(told) == 1
    assert "Take a sample" in live
    assert "headline-figure--over" not in editor.post("/campaigns/preview", FORM).text
    # What is sent all the same is refused with the same words, once.
    refused = editor.post("/campaigns/new", many | {"then": "quote"}).text
    assert refused.count(told) == 1
    # The page says that red fields say what to change: both lists of values are.
    for field in ("values-1", "values-2"):
        assert re.search(rf'id="{field}"[^>]* aria-invalid="true"', refused)
        assert re.search(rf'id="{field}-error"[^>]*>[^<]*fewer of these values', refused)


def test_a_value_that_is_too_long_is_told_once_beside_its_field(editor: Browser) -> None:
    long = FORM | {"values:geography": "Paris\n" + "x" * 10_000}
    message = "geography, value 2: this value has 10,000 characters; 2,000 are allowed."
    for response in (
        editor.post("/campaigns/preview", long),
        editor.post("/campaigns/new", long | {"then": "quote"}),
    ):
        assert response.text.count(message) == 1
        beside = re.search(r'id="values-2-error"[^>]*>([^<]*)<', response.text)
        assert beside is not None and beside[1] == message
        assert "once the values of geography are mended" in response.text
        assert "once the prompt can be read" not in response.text
    mended = editor.post("/campaigns/preview", FORM).text
    assert re.search(r'id="values-2-error"[^>]*hx-swap-oob="true"></p>', mended)


def test_another_model_offers_its_own_formats_outputs_and_words(editor: Browser) -> None:
    other = FORM | {"model_id": "flux.1-dev", "size": "4:5"}
    offered = editor.post("/campaigns/render-options", other).text
    assert 'value="4:5" checked' in offered
    assert "896 × 1120" in offered
    assert 'value="t2i" checked' in offered and 'value="t2v"' not in offered
    assert "data-preset" not in offered and "data-word" not in offered
    # A format that it lacks gives way to its first; what was typed stays.
    back = editor.post("/campaigns/render-options", FORM | {"size": "3:4", "task": "r2v"}).text
    assert 'value="16:9" checked' in back and 'value="t2v" checked' in back
    assert 'data-preset="Paris"' in back and "Paris\nTokyo\nOslo</textarea>" in back


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_id": "hidream-i1-full", "size": "4:5"}, "choose one of 1:1, 16:9, 9:16, 3:4."),
        ({"model_id": "flux.1-dev"}, "FLUX.1 dev makes no videos from a prompt"),
    ],
)
def test_without_scripts_a_model_that_lacks_what_is_chosen_says_so_and_shows_its_own(
    editor: Browser, changes: dict[str, str], message: str
) -> None:
    refused = editor.post("/campaigns/new", FORM | changes | {"then": "save"})
    assert refused.status_code == 400
    assert refused.text.count(message) == 1
    assert 'name="task" value="t2i"' in refused.text
    assert 'name="task" value="t2v"' not in refused.text


def test_the_form_tells_what_the_built_in_model_knows(editor: Browser) -> None:
    form = editor.get("/campaigns/new").text
    assert "What Adloom Tiny (built in) knows" in form
    for word in ("sneaker", "red", "beach", "sunset", "Rio de Janeiro", "gamers", "dolly in"):
        assert (f'data-word="{word}"' in form) is (word != "dolly in")
    assert 'data-word="camera pushes in"' in form


def test_values_of_a_removed_placeholder_come_back_with_it(editor: Browser) -> None:
    without = editor.post(
        "/campaigns/preview", FORM | {"prompt": "a red sneaker on {{ backdrop }}"}
    )
    assert 'name="parked" value="geography"' in without.text
    parked = FORM | {"parameter": ["backdrop"], "parked": ["geography"]}
    assert "Paris\nTokyo\nOslo</textarea>" in editor.post("/campaigns/preview", parked).text


def test_the_preview_names_every_error_with_its_place(editor: Browser) -> None:
    prompt = "a {{ backdrop | shout }}\nin {{ geography.secret }}"
    response = editor.post("/campaigns/preview", FORM | {"prompt": prompt})
    assert response.status_code == 200
    assert "Line 1, column" in response.text
    assert "Line 2, column" in response.text


def test_the_upload_page_promises_the_rows_that_a_batch_may_have(
    editor: Browser, campaign: Campaign, database: Database
) -> None:
    address = f"/campaigns/{campaign.id}/upload"
    page = editor.get(address).text
    assert "up to 10,000 rows and 32 MB" in page
    assert "Optional: a column called “Row ID”" in page
    with database.system_scope() as session:
        session.execute(update(Workspace).values(max_variants_per_batch=2))
    assert "up to 2 rows" in editor.get(address).text
    rows = b"backdrop,geography\n" + b"beach,Paris\n" * 3
    refused = upload(editor, campaign, rows)
    assert "the table has more than 2 rows" in refused.text


def upload(editor: Browser, campaign: Campaign, content: bytes) -> Any:
    editor.get(f"/campaigns/{campaign.id}/upload")
    return editor.post(
        f"/campaigns/{campaign.id}/upload",
        {"file": (io.BytesIO(content), "cities.csv")},
        content_type="multipart/form-data",
    )


TABLE = (
    b"row_id,backdrop,geo,audience,notes\n1,a beach,Paris,kids,first\n2,a hill,Oslo,runners,second"
)


def test_a_spreadsheet_becomes_a_quoted_batch(editor: Browser, campaign: Campaign) -> None:
    page = upload(editor, campaign, TABLE)
    assert page.status_code == 302
    mapping = editor.get(page.location)
    assert "cities.csv" in mapping.text
    assert "2 rows, 5 columns" in mapping.text
    # “geo” is proposed for the placeholder of a similar name.
    assert "<option selected>geo</option>" in mapping.text
    assert "second" in mapping.text
    columns = {"column:backdrop": "backdrop", "column:geography": "geo", "column:audience": ""}
    batch = editor.post(page.location, columns | {"column:audience": "audience"})
    quote = editor.get(batch.location).text
    assert "for 2 variants" in quote
    assert '<span class="slot kind--geography" title="geography">Oslo</span>' in quote


def test_typed_values_fill_in_for_a_column_that_is_missing(
    editor: Browser, campaign: Campaign
) -> None:
    page = upload(editor, campaign, TABLE).location
    editor.get(page)
    batch = editor.post(page, {"column:backdrop": "backdrop", "column:geography": "geo"})
    # Two rows, each for both of the campaign's audiences.
    assert "for 4 variants" in editor.get(batch.location).text


def test_a_column_that_nothing_fills_is_asked_for(
    editor: Browser, database: Database, actor: Actor
) -> None:
    with database.system_scope() as session:
        bare = make_campaign(session, workspace_id=actor.workspace_id, values={"geography": []})
    page = upload(editor, bare, TABLE).location
    editor.get(page)
    response = editor.post(page, {"column:backdrop": "backdrop"})
    assert response.status_code == 400
    assert "no value is given" in response.text
    assert count(database, Batch) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"row_id,backdrop,geography,audience\n", "no row below it"),
        (b"backdrop,geography,audience\na beach,,kids\na hill,Oslo,\n", "Row 2 (line 3)"),
        (b"backdrop,backdrop\na,b\n", "backdrop"),
    ],
)
def test_a_spreadsheet_that_cannot_be_used_names_every_place_and_is_not_kept(
    editor: Browser, database: Database, campaign: Campaign, content: bytes, message: str
) -> None:
    response = upload(editor, campaign, content)
    assert response.status_code == 400
    assert message in response.text
    assert "Nothing was saved" in response.text
    assert count(database, Upload) == 0


def test_a_file_that_is_too_large_is_refused_helpfully(editor: Browser, campaign: Campaign) -> None:
    response = upload(editor, campaign, b"x" * (33 * 2**20))
    assert response.status_code == 413
    assert "32 MB" in response.text


def test_the_sample_file_has_the_columns_of_the_campaign(
    editor: Browser, campaign: Campaign
) -> None:
    response = editor.get(f"/campaigns/{campaign.id}/sample.csv")
    assert response.mimetype == "text/csv"
    assert "attachment" in response.headers["Content-Disposition"]
    assert response.text.splitlines()[0] == "\ufeffrow_id,backdrop,geography,audience"


def test_launch_and_live_progress_with_304_while_nothing_changes(
    editor: Browser, database: Database
) -> None:
    batch = create_batch(editor)
    editor.get(batch)
    assert editor.post(f"{batch}/launch").location == batch
    page = editor.get(batch).text
    assert 'hx-trigger="every 2s"' in page
    first = editor.get(f"{batch}/progress")
    assert first.status_code == 200
    etag = first.headers["ETag"]
    again = editor.get(f"{batch}/progress", headers={"If-None-Match": etag})
    assert again.status_code == 304
    assert again.text == ""
    with database.system_scope() as session:
        assert not expanding.expand_chunk(session, session.query(Batch.id).scalar())
    changed = editor.get(f"{batch}/progress", headers={"If-None-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != etag
    tiles = editor.get(f"{batch}/tiles")
    assert tiles.text.count('class="tile ') == 6
    unchanged = editor.get(f"{batch}/tiles", headers={"If-None-Match": tiles.headers["ETag"]})
    assert unchanged.status_code == 304


def test_pausing_resuming_and_cancelling(editor: Browser) -> None:
    batch = create_batch(editor)
    editor.get(batch)
    for verb, words in [
        ("launch", "Preparing"),
        ("pause", "Paused"),
        ("resume", "Preparing"),
        ("cancel", "Cancelled"),
    ]:
        assert editor.post(f"{batch}/{verb}").status_code == 302
        assert words in editor.get(batch).text
        # From a second tab, which does not know yet: no error, and the batch as it is.
        again = editor.post(f"{batch}/{verb}", follow_redirects=True)
        assert again.status_code == 200
        assert "It is already" in again.text
        assert words in again.text
    cancelled = editor.get(batch).text
    progress = cancelled.split('id="progress"')[1].split("</section>")[0]
    assert "Waiting" not in progress
    assert "Back to the campaign" in cancelled
    assert "100%" not in cancelled
    again = editor.post(f"{batch}/duplicate")
    assert again.status_code == 302
    assert "Ready to launch" in editor.get(again.location).text
    late = editor.post(f"{batch}/pause")
    assert late.status_code == 409
    assert "cannot be paused" in late.text
    assert editor.post(f"{batch}/explode").status_code == 404


def test_the_gallery_filters_by_value_and_state(editor: Browser, database: Database) -> None:
    batch = create_batch(editor)
    editor.get(batch)
    editor.post(f"{batch}/launch")
    with database.system_scope() as session:
        expanding.expand_chunk(session, session.query(Batch.id).scalar())
    paris = editor.get(f"{batch}?value:geography=Paris").text
    assert paris.count('class="tile ') == 2
    assert "<option selected>Paris</option>" in paris
    assert "Nothing matches" in editor.get(f"{batch}?show=approved").text
    # Nonsense in the address narrows nothing.
    assert editor.get(f"{batch}?show=x&value:nothing=y").text.count('class="tile ') == 6


def test_what_belongs_to_another_workspace_is_not_there(
    editor: Browser, database: Database
) -> None:
    with database.system_scope() as session:
        other = make_workspace(session)
        campaign = make_campaign(session, workspace_id=other.id)
        batch = make_batch(session, campaign=campaign)
    for path in (
        f"/campaigns/{campaign.id}",
        f"/campaigns/{campaign.id}/edit",
        f"/campaigns/{campaign.id}/upload",
        f"/campaigns/{campaign.id}/sample.csv",
        f"/batches/{batch.id}",
        f"/batches/{batch.id}/progress",
        f"/batches/{batch.id}/tiles",
        f"/variants/{uuid4()}",
        f"/uploads/{uuid4()}",
        f"/media/{uuid4()}/file",
    ):
        assert editor.get(path).status_code == 404, path
    editor.get("/")
    for path in (f"/batches/{batch.id}/cancel", f"/campaigns/{campaign.id}/batches"):
        assert editor.post(path).status_code == 404, path


def test_viewers_look_and_do_no_more(
    editor: Browser, viewer: Browser, campaign: Campaign, database: Database
) -> None:
    batch = create_batch(editor)
    page = viewer.get(batch)
    assert page.status_code == 200
    assert "Launch" not in page.text
    assert "New batch" not in viewer.get(f"/campaigns/{campaign.id}").text
    for path in ("/campaigns/new", f"/campaigns/{campaign.id}/edit"):
        assert viewer.get(path).status_code == 403
    viewer.get("/")
    for path in (
        f"{batch}/launch",
        f"/campaigns/{campaign.id}/batches",
        f"/campaigns/{campaign.id}/upload",
    ):
        response = viewer.post(path)
        assert response.status_code in (400, 403), path
        assert "Your role" in response.text or "Choose a file" in response.text
    refused = viewer.post("/campaigns/new", FORM)
    assert refused.status_code == 403
    assert count(database, Batch) == 1


def test_errors_of_live_parts_come_as_a_notice(editor: Browser) -> None:
    response = editor.get(f"/batches/{uuid4()}/progress", headers={"HX-Request": "true"})
    assert response.status_code == 404
    assert response.headers["HX-Retarget"] == "#notices"
    assert "<html" not in response.text


def test_the_list_shows_campaigns_with_their_progress(editor: Browser, campaign: Campaign) -> None:
    page = editor.get("/").text
    assert campaign.name in page
    assert "Nothing rendered yet" in page


def test_a_campaign_that_lives_on_tables_begins_its_batches_with_one(editor: Browser) -> None:
    values = {"values:backdrop": "", "values:geography": ""}
    saved = editor.post("/campaigns/new", FORM | values | {"then": "save"})
    page = editor.get(saved.location).text
    assert "from a spreadsheet" in page
    assert '<a class="button button--primary" href="/campaigns/' in page
    assert "New batch" not in page
    assert "See count and price" not in page


def test_a_broken_prompt_is_told_once_at_its_field_with_name_and_place(editor: Browser) -> None:
    broken = FORM | {"prompt": "a red sneaker on {{ my backdrop }}", "parameter": []}
    message = "Line 1, column 18, {{ my backdrop }}: a placeholder&#39;s name is one word"
    for path in ("/campaigns/new", "/campaigns/preview"):
        text = editor.post(path, broken | {"then": "quote"}).text
        assert text.count("name is one word") == 1
        assert message in text
        assert "once the prompt can be read" in text
        assert "no placeholders yet" not in text
    # The field of the page that is open takes the message in.
    assert 'id="prompt-error" role="status" hx-swap-oob="true"' in text
    mended = editor.post("/campaigns/preview", FORM).text
    assert (
        '<div class="field__error" id="prompt-error" role="status" hx-swap-oob="true"></div>'
        in (mended)
    )
