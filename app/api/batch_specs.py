"""From what a caller sends to the frozen specification of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.access import Actor
from app.api.schemas.batches import BatchInput
from app.models import ExpansionMode, Parameter, Upload
from app.problems import ValidationFailed
from app.services import campaigns, uploads
from app.services.drafts import with_drafts
from app.services.parameters import clean_values, guess_kind
from app.services.render_settings import complete_settings
from app.services.specs import BatchSpec, SpecParameter, SpecSettings


def spec_of_request(session: Session, actor: Actor, body: BatchInput) -> BatchSpec:
    """The specification of a batch; what the caller leaves out is the campaign's."""
    details = campaigns.get_campaign(session, actor, body.campaign_id)
    upload = _upload(session, actor, body.upload_id)
    parameters = _parameters(body, details.parameters, upload)
    render = complete_settings(
        body.settings.model_dump(exclude_none=True), base=details.campaign.settings
    )
    settings = SpecSettings(**render.to_dict())
    mode = body.mode or _default_mode(parameters, upload)
    return make_spec(
        parameters=parameters,
        mode=mode,
        rules=_rules(body, details.campaign.settings, mode),
        settings=with_drafts(settings) if body.drafts else settings,
        seed=body.seed,
        takes=body.takes,
        sample_size=body.sample_size,
        sample_seed=body.seed,
        force_render=body.force_render,
        row_id_column=uploads.find_row_id_column(upload.header) if upload else None,
        row_count=upload.row_count if upload else None,
        passthrough=body.passthrough,
    )


def _rules(
    body: BatchInput, settings: Mapping[str, Any], mode: ExpansionMode
) -> list[dict[str, Any]]:
    """The rules sent, or the campaign's; line by line there are none unless they are sent."""
    if body.rules is not None:
        return [rule.model_dump() for rule in body.rules]
    return [] if mode is ExpansionMode.ZIP else settings.get("rules", [])


def make_spec(**values: Any) -> BatchSpec:
    """The specification; ValidationFailed where its parts do not fit together."""
    try:
        return BatchSpec(**values)
    except ValidationError as error:
        raise ValidationFailed(
            [
                {
                    "field": ".".join(map(str, item["loc"])) or "body",
                    "message": item["msg"],
                    "code": item["type"],
                }
                for item in error.errors(include_url=False)
            ]
        ) from None


def _upload(session: Session, actor: Actor, upload_id: UUID | None) -> Upload | None:
    return uploads.get_upload(session, actor, upload_id) if upload_id is not None else None


def _parameters(body: BatchInput, known: Any, upload: Upload | None) -> tuple[SpecParameter, ...]:
    """Values by placeholder: sent ones, the campaign's, or columns of the upload."""
    saved: dict[str, Parameter] = {item.name: item for item in known}
    values = {name: list(item.values) for name, item in saved.items()}
    kinds = {name: item.kind for name, item in saved.items()}
    for item in body.parameters or ():
        values[item.name] = clean_values(item.name, item.values)
        kinds[item.name] = item.kind or kinds.get(item.name) or guess_kind(item.name)
    columns = _columns(body, list(values), upload)
    return tuple(
        SpecParameter(
            name=name,
            kind=kinds[name],
            values=() if name in columns else tuple(given),
            column=columns.get(name),
        )
        for name, given in values.items()
    )


def _columns(body: BatchInput, names: list[str], upload: Upload | None) -> dict[str, str]:
    if upload is None:
        return {}
    sent = {item.name for item in body.parameters or () if item.values}
    matched = uploads.map_columns(upload.header, [name for name in names if name not in sent])
    columns = {**matched, **body.columns}
    uploads.check_columns(upload.header, columns, columns)
    return {name: column for name, column in columns.items() if name in names}


def _default_mode(parameters: tuple[SpecParameter, ...], upload: Upload | None) -> ExpansionMode:
    is_typed = any(item.values for item in parameters)
    return ExpansionMode.CARTESIAN if is_typed or upload is None else ExpansionMode.ZIP
