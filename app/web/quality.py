"""Another quality for a quoted batch, chosen beside its prices."""

from __future__ import annotations

from uuid import UUID

from flask import Blueprint, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.services.batch_quality import set_profile
from app.services.batches import get_batch
from app.web.scope import signed_in
from engine.types import QualityProfile

blueprint = Blueprint("quality", __name__, url_prefix="/batches")


@blueprint.post("/<uuid:batch_id>/quality")
@signed_in
def choose(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """Quote a batch that is not launched yet in another quality."""
    require(actor, Action.EDIT)
    get_batch(session, actor, batch_id)
    try:
        profile = QualityProfile(request.form.get("profile", ""))
    except ValueError:
        raise InvalidInput("There is no such quality.", field="profile") from None
    set_profile(session, actor, batch_id, profile=profile)
    return redirect(url_for("batches.show", batch_id=batch_id))
