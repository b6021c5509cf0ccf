"""The dashboard offers what can be rendered with: models whose weights are here."""

from __future__ import annotations

from app.web.campaigns import _is_offered
from engine.registry import get_model


def test_a_model_without_weights_is_offered_only_to_a_campaign_that_has_it() -> None:
    builtin, absent = get_model("adloom-tiny"), get_model("flux.1-dev")
    assert _is_offered(builtin, absent)
    assert not _is_offered(absent, builtin)
    assert _is_offered(absent, absent)
