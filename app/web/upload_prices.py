"""The price of an upload's rows with each quality, before there is a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy.orm import Session

from app.access import Actor
from app.errors import InvalidInput, LimitExceeded
from app.models import Upload, Workspace
from app.services import batches
from app.services.campaigns import CampaignDetails
from app.services.variants import variant_count
from app.web.batch_specs import spec_from_upload
from app.web.campaign_form import form_of
from app.web.presets import PROFILES
from app.web.quotes import profile_prices
from engine.units import clip_units

# Every row is planned for a price, about a second per thousand: more would keep people waiting.
MAX_PRICED: Final = 1_000


def chosen_columns(args: Mapping[str, str], details: CampaignDetails) -> dict[str, str]:
    """The column by placeholder, as a form or an address names them."""
    given = {item.name: args.get(f"column:{item.name}", "") for item in details.parameters}
    return {name: column for name, column in given.items() if column}


def price_context(
    session: Session,
    actor: Actor,
    upload: Upload,
    details: CampaignDetails,
    columns: Mapping[str, str],
) -> dict[str, Any]:
    """The chosen quality and the prices; of many rows only what they cost at most."""
    form = form_of(details)
    spec = spec_from_upload(form, upload, columns)
    names = {profile: (name, text) for profile, name, text in PROFILES}
    workspace = session.get_one(Workspace, actor.workspace_id)
    context: dict[str, Any] = {
        "campaign": details.campaign,
        "quality": names[spec.settings.profile],
        "currency": workspace.currency,
        "total": variant_count(spec),
        "qualities": [],
        "most_micros": None,
    }
    if context["total"] > MAX_PRICED:
        units = clip_units(spec.settings.to_render_settings()) * context["total"]
        return context | {"most_micros": round(units * workspace.rate_micros_per_unit)}
    try:
        quote = batches.estimate_batch(
            session, actor, campaign_id=upload.campaign_id, spec=spec, upload_id=upload.id
        )
    except (InvalidInput, LimitExceeded):
        # What is missing is told beside the columns, and the rest when it is sent.
        return context
    return context | {"qualities": profile_prices(quote, spec.settings.profile)}
