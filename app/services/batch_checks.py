"""What must be right before a batch exists: placeholders, upload, count, length of the prompts."""

from __future__ import annotations

from collections.abc import Iterator

from app.errors import InvalidInput, LimitExceeded
from app.models import Campaign, PromptTemplate, Upload, Workspace
from app.services import uploads
from app.services.expanding import Source
from app.services.prompts import optional_names, parse_prompt
from app.services.specs import BatchSpec
from app.services.table_findings import TableError
from app.services.variants import variant_count
from app.storage import Storage
from engine import registry
from engine.errors import InvalidRequest
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
    storage: Storage, upload: Upload, template: PromptTemplate, spec: BatchSpec
) -> None:
    """TableError naming each cell of the chosen columns that lacks a value or is too long."""
    findings = uploads.check_values(
        uploads.read_rows(storage, upload),
        spec.columns,
        optional=optional_names(template.text, template.negative_text),
    )
    if findings:
        raise TableError(findings)


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


def checked_requests(source: Source) -> Iterator[GenerationRequest]:
    """The batch's requests; InvalidInput for a prompt that is longer than the model reads."""
    model_id = source.spec.settings.model_id
    limit = registry.get_model(model_id).max_prompt_tokens
    checked_negatives: set[str] = set()
    for draft in source.drafts():
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
