"""What a batch may spend at most, as people type it at the launch and change it later."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from flask import Blueprint, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Actor
from app.errors import InvalidInput
from app.models import BatchState
from app.services import batches
from app.web.amounts import read_amount
from app.web.scope import signed_in, start_over

blueprint = Blueprint("spend_caps", __name__)


@blueprint.post("/batches/<uuid:batch_id>/spend-cap")
@signed_in
def update(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """Change the cap of a batch; a batch that a lower one held up goes on."""
    try:
        cap_micros = read_spend_cap(request.form)
        before = batches.get_batch(session, actor, batch_id).state
        batch = batches.set_spend_cap(session, actor, batch_id, spend_cap_micros=cap_micros)
    except InvalidInput as error:
        start_over(session, actor)
        flash(error.message, "error")
    else:
        goes_on = before is BatchState.PAUSED and batch.state is not BatchState.PAUSED
        flash("The spend cap is changed." + (" Going on." if goes_on else ""), "success")
    return redirect(url_for("batches.show", batch_id=batch_id))


def read_spend_cap(form: Mapping[str, str]) -> int | None:
    """What was typed as the cap, in micros; None for no cap."""
    return read_amount(form.get("spend_cap", ""), field="spend_cap", noun="the spend cap")
