"""Finished files that the store no longer holds: which they are, and how they come back."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import ARRAY, Text, any_, bindparam, select, update
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import Conflict
from app.models import Artifact, Batch, PromptTemplate
from app.services.batch_creation import MAX_NAME_LENGTH, create_batch
from app.services.exports import MAX_VARIANTS
from app.services.scoping import get_in_workspace
from app.services.specs import BatchSpec
from app.services.variant_views import VariantFilter, list_artifact_keys
from app.storage import Storage

REASON: Final = "The file is no longer in the store. Render it again from the batch's export page."
# An artifact that no variant asks for: nothing is reused by the empty key.
UNUSABLE_KEY: Final = ""
# As many as the client of a remote store keeps connections.
_LOOKS_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class MissingFiles:
    """Of `looked_at` finished variants so many lack files; `keys` are those of the files."""

    looked_at: int
    variant_count: int
    keys: frozenset[str]


def find_missing(storage: Storage, keys: Iterable[str]) -> frozenset[str]:
    """Those of the keys that the store does not hold; StorageError when it does not answer."""
    wanted = list(dict.fromkeys(keys))
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        held = pool.map(storage.exists, wanted)
        return frozenset(key for key, is_held in zip(wanted, held, strict=True) if not is_held)


def look(
    session: Session, actor: Actor, storage: Storage, batch_id: UUID, wanted: VariantFilter
) -> MissingFiles:
    """What of the finished variants that a filter means is gone; looks at MAX_VARIANTS of them."""
    require(actor, Action.VIEW)
    keys = list_artifact_keys(session, actor, batch_id, wanted, limit=MAX_VARIANTS)
    missing = find_missing(storage, keys)
    gone = sum(key in missing for key in keys)
    return MissingFiles(looked_at=len(keys), variant_count=gone, keys=missing)


def look_at_newest(session: Session, storage: Storage, *, count: int) -> MissingFiles:
    """Which files of the newest artifacts of all workspaces are gone, posters included.

    Needs a session of `adloom_system`.
    """
    columns = (Artifact.storage_key, Artifact.poster_key, Artifact.preview_key)
    of_each = session.execute(
        select(*columns)
        .where(Artifact.variant_key != UNUSABLE_KEY)
        .order_by(Artifact.id.desc())
        .limit(count)
    ).all()
    missing = find_missing(storage, (key for keys in of_each for key in keys))
    gone = sum(any(key in missing for key in keys) for keys in of_each)
    return MissingFiles(looked_at=len(of_each), variant_count=gone, keys=missing)


def forget(session: Session, actor: Actor, storage_keys: Collection[str]) -> None:
    """Have nothing reuse the artifacts of these files; needs a session of `adloom_system`."""
    require(actor, Action.EDIT)
    gone = bindparam(None, list(storage_keys), type_=ARRAY(Text))
    session.execute(
        update(Artifact)
        .where(Artifact.workspace_id == actor.workspace_id, Artifact.storage_key == any_(gone))
        .values(variant_key=UNUSABLE_KEY)
    )


def create_replacement(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """The same batch with the same prompt, quoted: what is still there is reused at its launch.

    Call it after `forget`, without which what is gone would be reused as well. Conflict for one
    that finishes drafts.
    """
    require(actor, Action.EDIT)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    if batch.spec.get("drafts_batch_id"):
        raise Conflict("This batch finishes drafts of another one; finish them there once more.")
    template = session.get_one(PromptTemplate, batch.prompt_template_id)
    spec = BatchSpec.model_validate(batch.spec)
    prompt, negative_prompt = spec.choose_prompts(template.text, template.negative_text)
    again = {"prompt": prompt, "negative_prompt": negative_prompt, "force_render": False}
    ending = ", files again"
    return create_batch(
        session,
        actor,
        campaign_id=batch.campaign_id,
        spec=spec.model_copy(update=again),
        upload_id=batch.upload_id,
        name=batch.name[: MAX_NAME_LENGTH - len(ending)] + ending,
    )
