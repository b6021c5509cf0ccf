"""Rendering one variant again with another prompt or seed: a batch of one that knows its origin."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.models import SETTING_KINDS, Batch, ExpansionMode, Variant
from app.services.batches import create_batch, get_batch
from app.services.blocked_terms import in_text, load_index, refuse
from app.services.prompts import parse_prompt
from app.services.scoping import get_in_workspace
from app.services.specs import MAX_TAKES, BatchSpec, SpecParameter, VariantOrigin
from engine.registry import MAX_SEED

# Seeds are shown to people, so ours stay short.
_SEED_RANGE: Final = 1_000_000


def new_seed(old: int) -> int:
    """A short random seed that is not the old one."""
    while (seed := secrets.randbelow(_SEED_RANGE)) == old:
        pass
    return seed


def create_rerender(
    session: Session, actor: Actor, variant_id: UUID, *, prompt: str, seed: int
) -> Batch:
    """A batch with a quote that renders a variant again; nothing is rendered before its launch.

    InvalidInput names the field `prompt` or `seed`: nothing was changed, or it cannot be used.
    """
    require(actor, Action.EDIT)
    variant = get_in_workspace(session, actor, Variant, variant_id)
    batch = get_batch(session, actor, variant.batch_id)
    prompt = prompt.replace("\r\n", "\n").strip()
    if prompt == variant.prompt.strip() and seed == variant.seed:
        raise InvalidInput(
            "Change the prompt or the seed: with both as they were, the same picture comes out.",
            field="prompt",
        )
    if not 0 <= seed <= MAX_SEED - MAX_TAKES:
        raise InvalidInput(
            f"The seed: enter a whole number from 0 to {MAX_SEED - MAX_TAKES:,}.", field="seed"
        )
    terms = load_index(session, actor.workspace_id)
    refuse(in_text(terms, prompt, field="prompt", where="The prompt"))
    spec = _spec(BatchSpec.model_validate(batch.spec), variant, prompt=prompt, seed=seed)
    return create_batch(
        session,
        actor,
        campaign_id=batch.campaign_id,
        spec=spec,
        name=f"Variant {variant.ordinal + 1} of {batch.name}, again",
    )


def list_rerenders(session: Session, actor: Actor, variant: Variant) -> list[Batch]:
    """The batches that render this variant again, the newest first."""
    require(actor, Action.VIEW)
    batch = get_batch(session, actor, variant.batch_id)
    return list(
        session.scalars(
            select(Batch)
            .where(
                Batch.workspace_id == actor.workspace_id,
                Batch.campaign_id == batch.campaign_id,
                Batch.spec["origin"]["variant_id"].astext == str(variant.id),
            )
            .order_by(Batch.id.desc())
        )
    )


def find_origin(session: Session, actor: Actor, batch: Batch) -> Variant | None:
    """The variant that a batch renders again; None for an ordinary batch."""
    origin = (batch.spec.get("origin") or {}).get("variant_id")
    if origin is None:
        return None
    return session.scalars(
        select(Variant).where(
            Variant.id == UUID(origin), Variant.workspace_id == actor.workspace_id
        )
    ).one_or_none()


def _spec(source: BatchSpec, variant: Variant, *, prompt: str, seed: int) -> BatchSpec:
    """One variant of the source's settings; values that are still in the prompt stay parameters."""
    text = bind_values(prompt, variant.slots, variant.values)
    kept = {item.name for item in parse_prompt(text).placeholders}
    parameters = tuple(
        SpecParameter(name=item.name, kind=item.kind, values=(variant.values[item.name],))
        for item in source.parameters
        if variant.values.get(item.name) and (item.name in kept or item.kind in SETTING_KINDS)
    )
    named = {item.name for item in parameters}
    lost = {name: str(value) for name, value in variant.values.items() if name not in named}
    try:
        return BatchSpec(
            parameters=parameters,
            mode=ExpansionMode.CARTESIAN,
            settings=source.settings,
            seed=seed,
            prompt=text,
            negative_prompt=variant.negative_prompt,
            origin=VariantOrigin(
                variant_id=str(variant.id),
                row_id=variant.row_id,
                # A value that left the prompt is still what the row is about.
                passthrough=lost | variant.passthrough,
            ),
        )
    except ValidationError as error:
        raise InvalidInput(
            f"This cannot be rendered again: {error.errors()[0]['msg']}", field="prompt"
        ) from error


def bind_values(text: str, slots: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> str:
    """The prompt as a template: values that still stand in it become their placeholders again.

    Rendered with the same values, the template gives the text back. Values are looked for as whole
    words in the order in which they stood; one that a filter had changed stays as it is written.
    """
    parts: list[str] = []
    position = 0
    for slot in sorted(slots, key=lambda item: item["span"][0]):
        name, value = slot["name"], slot["value"]
        if not value.strip() or values.get(name) != value:
            continue
        found = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)").search(text, position)
        if found is None:
            continue
        parts += [text[position : found.start()], f"{{{{ {name} }}}}"]
        position = found.end()
    return "".join(parts) + text[position:]
