"""The quote's table of qualities, and the way to one that promises more for less."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.db import Database
from app.models import Batch
from tests.integration.test_web_campaigns import create_batch
from tests.web import Browser

pytestmark = pytest.mark.usefixtures("weights")


def test_a_closer_quality_that_is_cheaper_is_named_and_taken(
    editor: Browser, database: Database
) -> None:
    path = create_batch(editor, profile="consistent")
    page = editor.get(path).text
    for name in ("Consistent", "Faithful", "Exact", "Fast", "Rough"):
        assert f'<th scope="row">{name}' in page
    assert "Faithful is cheaper for this batch: $" in page
    again = editor.post(f"{path}/quality", {"profile": "faithful"}, follow_redirects=True).text
    assert "is cheaper for this batch" not in again
    assert '<th scope="row">Faithful <span class="muted">chosen</span>' in again
    with database.system_scope() as session:
        spec = session.get_one(Batch, UUID(path.rpartition("/")[2])).spec
    assert spec["settings"]["profile"] == "faithful"


def test_a_quality_is_changed_only_before_the_launch(editor: Browser) -> None:
    path = create_batch(editor)
    assert editor.post(f"{path}/quality", {"profile": "shiny"}).status_code == 400
    editor.get(path)
    editor.post(f"{path}/launch")
    refused = editor.post(f"{path}/quality", {"profile": "faithful"})
    assert refused.status_code == 409
    assert "as long as a batch has not been launched" in refused.text
