"""The first prompts of a batch that has no variants yet, for its quote."""

from __future__ import annotations

from itertools import islice

from sqlalchemy.orm import Session

from app.models import Batch
from app.services.expanding import open_source
from app.services.promoted import read_promoted
from app.services.specs import BatchSpec
from app.services.variants import VariantDraft
from app.web.prompt_parts import PromptPart, from_stored

MAX_SAMPLES = 5


def sample_prompts(session: Session, batch: Batch, spec: BatchSpec) -> list[list[PromptPart]]:
    """Prompts of the first variants, as the expansion will write them."""
    if spec.drafts_batch_id is not None:
        return [_parts(draft) for draft in read_promoted(session, batch)[:MAX_SAMPLES]]
    source = open_source(
        session,
        spec,
        prompt_template_id=batch.prompt_template_id,
        upload_id=batch.upload_id,
    )
    return [_parts(draft) for draft in islice(source.drafts(), MAX_SAMPLES)]


def _parts(draft: VariantDraft) -> list[PromptPart]:
    return from_stored(draft.prompt, [slot.to_dict() for slot in draft.slots])
