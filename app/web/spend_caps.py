"""What a batch may spend at most, as people type it at the launch and change it later."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final
from uuid import UUID

from flask import Blueprint, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Actor
from app.errors import InvalidInput
from app.models import BatchState
from app.services import batches
from app.web.scope import signed_in, start_over

blueprint = Blueprint("spend_caps", __name__)

# 12, 12.50 or 1,200.5; more decimals than a micro has are no amount.
_AMOUNT: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d{1,6})?|\d{1,9}(?:\.\d{1,6})?")


@blueprint.post("/batches/<uuid:batch_id>/spend-cap")
@signed_in
def update(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """Change the cap of a batch; a batch that a lower one held up goes on."""
    try:
        cap_micros = read_amount(request.form.get("spend_cap", ""))
        before = batches.get_batch(session, actor, batch_id).state
        batch = batches.set_spend_cap(session, actor, batch_id, spend_cap_micros=cap_micros)
    except InvalidInput as error:
        start_over(session, actor)
        flash(error.message, "error")
    else:
        goes_on = before is BatchState.PAUSED and batch.state is not BatchState.PAUSED
        flash("The spend cap is changed." + (" Going on." if goes_on else ""), "success")
    return redirect(url_for("batches.show", batch_id=batch_id))


def write_amount(micros: int) -> str:
    """An amount as `read_amount` takes it, without zeros that say nothing."""
    whole, part = divmod(micros, 1_000_000)
    decimals = f"{part:06}".rstrip("0")
    return f"{whole}.{decimals.ljust(2, '0')}" if decimals else str(whole)


def read_amount(text: str) -> int | None:
    """An amount in micros, None for an empty field; InvalidInput for what is no amount."""
    written = text.strip()
    if not written:
        return None
    if not _AMOUNT.fullmatch(written):
        raise InvalidInput(
            f"{written[:40]!r} is no amount. Write the spend cap as a number, such as 12.50, or"
            " leave it empty.",
            field="spend_cap",
        )
    return int(Decimal(written.replace(",", "")) * 1_000_000)
