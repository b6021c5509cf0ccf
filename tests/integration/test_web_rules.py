"""Rules between values, on the form and over the API: counted, quoted, expanded."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import Database
from app.models import Batch, Variant, Workspace
from app.services import expanding
from tests.api import Api, make_key
from tests.integration.test_web_campaigns import FORM, create_batch
from tests.web import Browser

pytestmark = pytest.mark.usefixtures("weights")
RULES: dict[str, Any] = {
    "rule_when": ["geography=Oslo", "geography=Paris", ""],
    "rule_verb": ["never", "only", "never"],
    "rule_with": ["backdrop=a beach", "backdrop=a forest", ""],
}
LEFT = {("Paris", "a forest"), ("Oslo", "a forest"), ("Tokyo", "a beach"), ("Tokyo", "a forest")}


@pytest.fixture
def api(app: Flask, database: Database, workspace: Workspace) -> Api:
    return Api(app, make_key(database, workspace))


def test_the_live_count_leaves_out_what_rules_leave_out(editor: Browser) -> None:
    answer = editor.post("/campaigns/preview", FORM | RULES)
    assert "4 variants" in answer.text
    assert "2 backdrop × 3 geography − 2 left out" in answer.text
    without = editor.post("/campaigns/preview", FORM | RULES | {"mode": "zip"} | ROWS_OF_THREE)
    assert "3 variants" in without.text


ROWS_OF_THREE = {"values:backdrop": "a beach\na forest\na roof"}


def test_the_rules_are_offered_anew_only_when_the_values_change(editor: Browser) -> None:
    first = editor.post("/campaigns/preview", FORM | RULES).text
    assert 'id="rules"' in first
    (known,) = {part.split('"')[0] for part in first.split('name="rules_of" value="')[1:]}
    assert 'id="rules"' not in editor.post("/campaigns/preview", FORM | {"rules_of": known}).text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule_when": ["geography=Rome"]}, "is about &#39;Rome&#39;, which is no value of"),
        ({"rule_when": ["backdrop=a roof"]}, "names backdrop on both sides"),
        (
            {
                "rule_when": ["geography=Paris", "geography=Tokyo", "geography=Oslo"] * 2,
                "rule_verb": ["never"] * 6,
                "rule_with": ["backdrop=a beach"] * 3 + ["backdrop=a forest"] * 3,
            },
            "leave no combination at all",
        ),
    ],
)
def test_what_is_wrong_with_rules_is_told_below_them(
    editor: Browser, changes: dict[str, Any], message: str
) -> None:
    form = FORM | {"rule_verb": ["never"], "rule_with": ["backdrop=a beach"]} | changes
    answer = editor.post("/campaigns/preview", form)
    assert message in answer.text.split('id="rules-error"')[1].split("</p>")[0]


def test_rules_are_kept_quoted_and_expanded(editor: Browser, database: Database) -> None:
    path = create_batch(editor, **RULES)
    page = editor.get(path).text
    assert "Oslo never with a beach; Paris only with a forest" in page
    assert "for 4 variants" in page
    with database.system_scope() as session:
        batch = session.scalars(select(Batch)).one()
    form = editor.get(f"/campaigns/{batch.campaign_id}/edit").text
    assert '<option value="geography=Oslo" selected>' in form
    editor.post(f"/batches/{batch.id}/launch")
    with database.system_scope() as session:
        while expanding.expand_chunk(session, batch.id, chunk_size=3):
            pass
        rows = session.scalars(select(Variant.values).order_by(Variant.ordinal)).all()
    assert {(row["geography"], row["backdrop"]) for row in rows} == LEFT
    assert len(rows) == 4


def test_a_rule_about_a_column_is_refused_with_the_way_out(editor: Browser) -> None:
    campaign = editor.post("/campaigns/new", FORM | RULES | {"then": "save"}).location
    table = io.BytesIO(b"geography\nOslo\nParis\n")
    editor.get(f"{campaign}/upload")
    sent = editor.post(f"{campaign}/upload", {"file": (table, "rows.csv")})
    answer = editor.post(sent.location, {"column:geography": "geography"})
    assert answer.status_code == 400
    assert "which comes from the table" in answer.text


def test_the_api_takes_rules_and_otherwise_the_campaigns(
    editor: Browser, api: Api, database: Database
) -> None:
    create_batch(editor, **RULES)
    with database.system_scope() as session:
        campaign_id = str(session.scalars(select(Batch.campaign_id)).one())
    body: dict[str, Any] = {"campaign_id": campaign_id}
    assert api.made("/quotes", body)["variant_count"] == 4
    assert api.made("/quotes", body | {"rules": []})["variant_count"] == 6
    rule = {"when": {"geography": ["Oslo", "Paris"]}, "never": {"backdrop": ["a beach"]}}
    quote = api.made("/quotes", body | {"rules": [rule]})
    assert quote["variant_count"] == 4
    with database.system_scope() as session:
        spec = session.get_one(Batch, UUID(quote["batch_id"])).spec
    assert spec["rules"] == [rule | {"only": {}}]
    wrong = rule | {"when": {"geography": ["Rome"]}}
    refused = api.post("/quotes", body | {"rules": [wrong]})
    assert (refused.status_code, refused.json["field"]) == (400, "rules")
    refused = api.post("/quotes", body | {"rules": [rule], "mode": "zip"})
    assert refused.status_code == 400
    nothing = api.post("/quotes", body | {"rules": [{"when": {"geography": ["Oslo"]}}]})
    assert nothing.status_code == 422
