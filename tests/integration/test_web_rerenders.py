"""One variant rendered again: quoted as a batch of one, which remembers where it came from."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask

from app.access import Role
from app.db import Database
from app.models import Batch, Variant, Workspace
from app.services.rerenders import bind_values
from app.storage import Storage
from tests.factories import make_workspace
from tests.integration.gallery_tools import launch, render
from tests.web import Browser, make_member

pytestmark = pytest.mark.usefixtures("weights")

PROMPT = "a red sneaker on a beach, Tokyo"


@pytest.fixture
def variant_id(editor: Browser, database: Database, storage: Storage, tmp_path: Path) -> UUID:
    """The second of six finished variants, of which it has the prompt PROMPT."""
    ids = render(database, storage, tmp_path, launch(editor))
    with database.system_scope() as session:
        assert session.get_one(Variant, ids[1]).prompt == PROMPT
    return ids[1]


def again(editor: Browser, variant_id: UUID, **form: str) -> str:
    """The path of the quote."""
    editor.get(f"/variants/{variant_id}")
    answer = editor.post(f"/variants/{variant_id}/rerender", {"prompt": PROMPT, "seed": "7"} | form)
    assert answer.status_code == 302, answer.text
    return answer.location


def test_an_edited_prompt_is_quoted_launched_and_traced_to_where_it_came_from(
    editor: Browser, database: Database, storage: Storage, tmp_path: Path, variant_id: UUID
) -> None:
    path = again(editor, variant_id, prompt="a blue sneaker on a beach, in snowy Oslo")
    quote = editor.get(path).text
    assert "Launch 1 render" in quote
    assert "Variant 2 of Batch 1, again" in quote
    # What is still in the prompt is still a value; the campaign's own prompt is as it was.
    assert '<span class="slot kind--backdrop" title="backdrop">a beach</span>' in quote
    editor.post(f"{path}/launch")
    (new_id,) = render(database, storage, tmp_path, UUID(path.rpartition("/")[2]))
    with database.system_scope() as session:
        new = session.get_one(Variant, new_id)
    assert new.prompt == "a blue sneaker on a beach, in snowy Oslo"
    assert new.values == {"backdrop": "a beach"}
    assert new.passthrough == {"geography": "Tokyo"}
    assert "Rendered again from" in editor.get(f"/variants/{new_id}").text
    assert f'href="/variants/{variant_id}"' in editor.get(f"/variants/{new_id}").text
    assert path in editor.get(f"/variants/{variant_id}").text


def test_a_new_seed_keeps_prompt_and_values(
    editor: Browser, database: Database, variant_id: UUID
) -> None:
    path = again(editor, variant_id, new_seed="1")
    with database.system_scope() as session:
        spec = session.get_one(Batch, UUID(path.rpartition("/")[2])).spec
    assert spec["seed"] != 7
    assert spec["prompt"] == "a red sneaker on {{ backdrop }}, {{ geography }}"
    assert spec["origin"]["variant_id"] == str(variant_id)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({}, "Change the prompt or the seed"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "a {{ new }} sneaker"}, "no value"),
        ({"seed": "-1"}, "enter a whole number"),
        ({"seed": "99999999999999999999999"}, "enter a whole number"),
    ],
)
def test_what_cannot_be_rendered_again_is_said_and_leaves_nothing(
    editor: Browser, database: Database, variant_id: UUID, form: dict[str, str], message: str
) -> None:
    editor.get(f"/variants/{variant_id}")
    typed = {"prompt": PROMPT, "seed": "7"} | form
    answer = editor.post(f"/variants/{variant_id}/rerender", typed)
    assert answer.status_code == 400
    assert message in answer.text
    assert f">{typed['prompt']}</textarea>" in answer.text
    with database.system_scope() as session:
        assert session.query(Batch).count() == 1


def test_viewers_and_strangers_render_nothing_again(
    app: Flask, database: Database, workspace: Workspace, variant_id: UUID
) -> None:
    with database.system_scope() as session:
        other = make_workspace(session)
    for place, role, status in ((workspace, Role.VIEWER, 403), (other, Role.OWNER, 404)):
        browser = Browser(app)
        browser.sign_in(make_member(database, place, role))
        browser.get("/")
        form = {"prompt": "a blue sneaker", "seed": "7"}
        assert browser.post(f"/variants/{variant_id}/rerender", form).status_code == status


def test_values_are_bound_as_whole_words_in_their_order() -> None:
    slots = [
        {"name": "colour", "kind": "text", "value": "red", "span": [2, 5]},
        {"name": "place", "kind": "geography", "value": "Paris", "span": [10, 15]},
        {"name": "shout", "kind": "text", "value": "NOW", "span": [20, 23]},
    ]
    values = {"colour": "red", "place": "Paris", "shout": "now"}
    bound = bind_values("a reddish red shoe, Paris, NOW", slots, values)
    # NOW was made of “now” by a filter, so it stays text.
    assert bound == "a reddish {{ colour }} shoe, {{ place }}, NOW"
