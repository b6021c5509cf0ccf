"""The batch of the demo: made, or found again, through the services that the dashboard uses."""

from __future__ import annotations

import io
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.orm import Session

from app.access import Actor
from app.cli.demo_input import DemoInput
from app.cli.demo_login import Login, open_workspace
from app.db import Database
from app.models import Batch, BatchState, ExpansionMode, Upload
from app.services import batches, campaigns, uploads
from app.services.campaign_list import list_campaigns
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from app.stack.folder import StateFolder
from app.storage import Storage

UNFINISHED = (BatchState.PREVIEWING, BatchState.EXPANDING, BatchState.RUNNING, BatchState.PAUSED)


@dataclass(frozen=True, kw_only=True)
class DemoBatch:
    """A batch that is quoted; `is_resumed` when an earlier run left it unfinished."""

    actor: Actor
    batch: Batch
    login: Login
    is_resumed: bool


def prepare_batch(
    database: Database, storage: Storage, wanted: DemoInput, *, folder: StateFolder
) -> DemoBatch:
    """Workspace, campaign, upload and batch; all or nothing is made of the last three."""
    with database.system_scope() as session:
        actor, login = open_workspace(session, folder)
    with database.workspace_scope(actor) as session:
        campaign_id = _campaign(session, actor, wanted)
        stream = io.BytesIO(wanted.table.content)
        upload = uploads.create_upload(
            session,
            actor,
            storage,
            campaign_id=campaign_id,
            filename=wanted.table.filename,
            stream=stream,
        )
        spec = _spec(session, actor, upload, wanted)
        unfinished = None if wanted.force else _find_unfinished(session, actor, upload, spec)
        batch = unfinished or batches.create_batch(
            session, actor, campaign_id=campaign_id, spec=spec, upload_id=upload.id
        )
        if unfinished is not None:
            session.delete(upload)
    return DemoBatch(actor=actor, batch=batch, login=login, is_resumed=unfinished is not None)


def launch(database: Database, demo: DemoBatch) -> None:
    """Start the batch, or what an earlier run left of it."""
    with database.workspace_scope(demo.actor) as session:
        batch = batches.get_batch(session, demo.actor, demo.batch.id)
        if batch.state is BatchState.PREVIEWING:
            batches.launch_batch(session, demo.actor, batch.id)
        elif batch.state is BatchState.PAUSED:
            batches.resume_batch(session, demo.actor, batch.id)


def _campaign(session: Session, actor: Actor, wanted: DemoInput) -> UUID:
    """The campaign of this name, with this prompt as its newest version."""
    for summary in list_campaigns(session, actor):
        if summary.campaign.name == wanted.campaign:
            campaign_id = summary.campaign.id
            campaigns.save_prompt_template(
                session,
                actor,
                campaign_id,
                text=wanted.prompt,
                negative_text=wanted.negative_prompt,
            )
            return campaign_id
    campaign = campaigns.create_campaign(
        session,
        actor,
        name=wanted.campaign,
        brief=wanted.brief,
        settings=wanted.settings.to_dict() | {"seed": wanted.seed},
        prompt=wanted.prompt,
        negative_prompt=wanted.negative_prompt,
    )
    return campaign.id


def _spec(session: Session, actor: Actor, upload: Upload, wanted: DemoInput) -> BatchSpec:
    """A variant per row of the upload, with the columns named like the placeholders."""
    details = campaigns.get_campaign(session, actor, upload.campaign_id)
    names = [parameter.name for parameter in details.parameters]
    columns = uploads.map_columns(upload.header, names)
    uploads.check_columns(upload.header, columns, names)
    return BatchSpec(
        parameters=tuple(
            SpecParameter(name=item.name, kind=item.kind, column=columns[item.name])
            for item in details.parameters
        ),
        mode=ExpansionMode.ZIP,
        settings=SpecSettings(**wanted.settings.to_dict()),
        seed=wanted.seed,
        force_render=wanted.force,
        row_id_column=uploads.find_row_id_column(upload.header),
        row_count=upload.row_count,
    )


def _find_unfinished(
    session: Session, actor: Actor, upload: Upload, spec: BatchSpec
) -> Batch | None:
    """The newest batch, if it is the same one and an earlier run was interrupted in it."""
    details = campaigns.get_campaign(session, actor, upload.campaign_id)
    for batch in batches.list_batches(session, actor, campaign_id=upload.campaign_id, limit=1):
        earlier = uploads.get_upload(session, actor, batch.upload_id) if batch.upload_id else None
        is_same = (
            earlier is not None
            and earlier.sha256 == upload.sha256
            and batch.prompt_template_id == details.template.id
            and BatchSpec.model_validate(batch.spec) == spec
        )
        if is_same and batch.state in UNFINISHED:
            return batch
    return None
