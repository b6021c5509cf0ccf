"""What must be right before a batch exists: placeholders, upload, words, count, prompt lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from sqlalchemy.orm import Session

from app.errors import InvalidInput, LimitExceeded, ServiceUnavailable
from app.models import Batch, Campaign, PromptTemplate, Upload, Workspace
from app.services import uploads
from app.services.blocked_terms import (
    BlockedUse,
    in_prompts,
    in_text,
    in_values,
    load_index,
    refuse,
)
from app.services.expanding import Source, open_source
from app.services.promoted import read_promoted
from app.services.prompts import optional_names, parse_prompt
from app.services.specs import BatchSpec
from app.services.table_findings import TableError
from app.services.term_index import TermIndex
from app.services.variants import VariantDraft, variant_count
from app.storage import Storage
from engine import registry
from engine.errors import CheckpointError, InvalidRequest
from engine.types import GenerationRequest


def check_placeholders(template: PromptTemplate, spec: BatchSpec) -> None:
    """Raise InvalidInput for a placeholder that needs a value and is given none."""
    given = {item.name for item in spec.parameters if item.values or item.column}
    for text in spec.choose_prompts(template.text, template.negative_text):
        if not text.strip():
            continue
        for placeholder in parse_prompt(text).placeholders:
            if placeholder.is_required and placeholder.name not in given:
                raise InvalidInput(
                    f"The prompt has the placeholder {{{{ {placeholder.name} }}}} (line "
                    f"{placeholder.line}, column {placeholder.column}), but no value is given "
                    "for it. Type values or choose a column.",
                    field=placeholder.name,
                )


def check_upload(upload: Upload, campaign: Campaign, spec: BatchSpec) -> None:
    """Raise InvalidInput unless the spec was made for this upload of this campaign."""
    if upload.campaign_id != campaign.id:
        raise InvalidInput("This table was uploaded for another campaign.", field="upload_id")
    if spec.row_count != upload.row_count:
        raise InvalidInput(
            f"The batch was made for {spec.row_count or 0:,} rows, but {upload.filename} has "
            f"{upload.row_count:,}.",
            field="row_count",
        )
    named = {*spec.columns.values(), spec.row_id_column, spec.seed_column} - {None}
    for column in sorted(filter(None, named)):
        if column not in upload.header:
            raise InvalidInput(
                f"{upload.filename} has no column {column!r}; it has: {', '.join(upload.header)}.",
                field=column,
            )


def check_upload_values(
    storage: Storage,
    upload: Upload,
    template: PromptTemplate,
    spec: BatchSpec,
    *,
    terms: TermIndex,
) -> None:
    """TableError naming each cell of the chosen columns without a value, or with a blocked term."""
    findings = uploads.check_values(
        uploads.read_rows(storage, upload),
        spec.columns,
        optional=optional_names(template.text, template.negative_text),
        terms=terms,
    )
    if findings:
        raise TableError(findings)


def check_words(template: PromptTemplate, spec: BatchSpec, *, terms: TermIndex) -> None:
    """BlockedTermError naming what the prompts and the typed values must not hold."""
    prompts = spec.choose_prompts(template.text, template.negative_text)
    typed = {item.name: item.values for item in spec.parameters}
    refuse(chain(in_prompts(terms, *prompts), in_values(terms, typed)))


def check_launch(session: Session, batch: Batch) -> None:
    """BlockedTermError naming the variants with terms that were blocked after the batch was quoted.

    A variant may hold a term that no value holds: one that begins in the prompt and ends in it.
    """
    terms = load_index(session, batch.workspace_id)
    if not terms:
        return
    spec = BatchSpec.model_validate(batch.spec)
    if spec.drafts_batch_id is not None:
        refuse(in_drafts(terms, read_promoted(session, batch)))
        return
    template = session.get_one(PromptTemplate, batch.prompt_template_id)
    check_words(template, spec, terms=terms)
    try:
        source = open_source(
            session, spec, prompt_template_id=template.id, upload_id=batch.upload_id
        )
    except CheckpointError as error:
        raise ServiceUnavailable(f"The model's weights cannot be used: {error}") from error
    refuse(in_drafts(terms, source.drafts()))


def in_drafts(terms: TermIndex, drafts: Iterable[VariantDraft]) -> Iterator[BlockedUse]:
    """Blocked terms in what variants are rendered from; each is named by its number from 1."""
    if not terms:
        return
    for draft in drafts:
        row = f" (row {draft.row_id})" if draft.row_id else ""
        where = f"Variant {draft.ordinal + 1:,}{row}"
        yield from in_text(terms, draft.prompt, field="prompt", where=where)
        if draft.negative_prompt:
            where = f"{where}, negative prompt"
            yield from in_text(terms, draft.negative_prompt, field="negative_prompt", where=where)


def find_overrun(total: int, limit: int) -> str:
    """What is wrong with so many variants in a workspace that allows `limit`; empty if nothing."""
    if total <= limit:
        return ""
    return (
        f"These values give {total:,} variants, and this workspace allows {limit:,} per batch. "
        "Take a sample, use fewer values, or ask whoever runs Adloom here for a higher limit."
    )


def checked_count(spec: BatchSpec, workspace: Workspace) -> int:
    """How many variants there will be; LimitExceeded when the workspace allows fewer."""
    total = variant_count(spec)
    if total == 0:
        raise InvalidInput("These values give no variant at all; add some.")
    if overrun := find_overrun(total, workspace.max_variants_per_batch):
        raise LimitExceeded(overrun, field="variant_count")
    return total


def checked_requests(source: Source, *, terms: TermIndex) -> Iterator[GenerationRequest]:
    """The batch's requests; InvalidInput for a prompt that is too long or holds a blocked term."""
    model_id = source.spec.settings.model_id
    limit = registry.get_model(model_id).max_prompt_tokens
    checked_negatives: set[str] = set()
    for draft in source.drafts():
        refuse(in_drafts(terms, [draft]))
        try:
            if not _is_surely_short(draft.prompt, limit):
                registry.validate_prompt(model_id, draft.prompt)
            if draft.negative_prompt and draft.negative_prompt not in checked_negatives:
                registry.validate_prompt(model_id, draft.negative_prompt, field="negative_prompt")
                checked_negatives.add(draft.negative_prompt)
        except InvalidRequest as error:
            raise InvalidInput(
                f"Variant {draft.ordinal + 1}: {error} The prompt is: {draft.prompt[:200]}",
                field=error.field,
            ) from error
        yield draft.to_request()


def _is_surely_short(prompt: str, limit: int) -> bool:
    """Whether a prompt fits however it is cut into tokens: each holds a letter, besides two marks.

    Most prompts of large batches are spared the tokenizer so, which takes longer than the rest.
    """
    return prompt.isascii() and bool(prompt.strip()) and len(prompt) + 2 <= limit
