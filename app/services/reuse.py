"""What of a quoted batch the workspace has rendered already, and what the rest then costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from sqlalchemy import ARRAY, Text, any_, bindparam, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.models import Artifact, Batch
from app.services.expanding import open_source
from app.services.planning import PlanTerms, charged_units
from app.services.progress import binding_quote
from app.services.quotes import cost_micros
from app.services.scoping import get_in_workspace
from app.services.specs import CHUNK_SIZE, BatchSpec


@dataclass(frozen=True, kw_only=True)
class Reuse:
    """`variant_count` variants are there already; `cost_micros` is the price of the others."""

    variant_count: int
    cost_micros: int


def estimate_reuse(session: Session, actor: Actor, batch_id: UUID) -> Reuse:
    """What launching the batch now would find finished; every variant is made once to tell."""
    require(actor, Action.VIEW)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    quote = binding_quote(session, batch_id)
    spec = BatchSpec.model_validate(batch.spec)
    if spec.force_render:
        return Reuse(variant_count=0, cost_micros=quote.cost_micros)
    source = open_source(
        session, spec, prompt_template_id=batch.prompt_template_id, upload_id=batch.upload_id
    )
    # The terms of the price are the terms of the work.
    terms = PlanTerms.from_json(quote.details.get("plan", {}))
    reused, units = 0, 0.0
    # In the chunks of the expansion, which plans each of them by itself.
    made = source.drafts()
    while drafts := list(islice(made, CHUNK_SIZE)):
        known = find_known(session, actor, (draft.variant_key for draft in drafts))
        ready = {str(draft.ordinal) for draft in drafts if draft.variant_key in known}
        reused += len(ready)
        planned = terms.plan([draft.to_request() for draft in drafts])
        members = [member for group in planned.groups for member in group.members]
        units += sum(charged_units(m) for m in members if m.request_id not in ready)
    cost = cost_micros(units, quote.rate_micros_per_unit)
    return Reuse(variant_count=reused, cost_micros=min(cost, quote.cost_micros))


def find_known(session: Session, actor: Actor, keys: Iterable[str]) -> set[str]:
    """Those of the variant keys, of any number, that the workspace has an artifact of."""
    known: set[str] = set()
    rest = iter(keys)
    while chunk := list(islice(rest, CHUNK_SIZE)):
        wanted = bindparam(None, chunk, type_=ARRAY(Text))
        found = select(Artifact.variant_key).where(
            Artifact.workspace_id == actor.workspace_id, Artifact.variant_key == any_(wanted)
        )
        known.update(session.scalars(found))
    return known
