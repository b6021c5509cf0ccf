"""A claimed job as a worker gets it, with all that its render needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from app.models import JobPurpose
from app.services.variants import preview_key, preview_settings
from engine.forks import with_fork_steps
from engine.types import GenerationRequest, PromptSlot, RenderSettings

AnyRow = Row[*tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimedJob:
    """A job with all that its render needs; `number` counts the starts, this one included."""

    job_id: UUID
    variant_id: UUID
    batch_id: UUID
    workspace_id: UUID
    purpose: JobPurpose
    number: int
    variant_key: str
    prompt: str
    negative_prompt: str
    slots: tuple[PromptSlot, ...]
    seed: int
    settings: RenderSettings
    work_units: float
    shared_units: float
    fork_steps: Mapping[str, int]
    # The draft whose steps need not be computed again.
    draft_id: UUID | None = None

    def to_request(self) -> GenerationRequest:
        """The engine's request on its planned way through the tree; its id is the job's id."""
        request = GenerationRequest(
            request_id=str(self.job_id),
            prompt=self.prompt,
            negative_prompt=self.negative_prompt,
            slots=self.slots,
            seed=self.seed,
            settings=self.settings,
        )
        return with_fork_steps(request, self.fork_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimedGroup:
    """Jobs leased under one token, in the order of their plan."""

    token: int
    group_key: str
    affinity_key: str
    jobs: tuple[ClaimedJob, ...]


def effective_key(row: AnyRow) -> str:
    """The key of the pixels that the job of this row makes (purpose, settings, variant_key)."""
    key: str = row.variant_key
    if row.purpose is JobPurpose.PREVIEW:
        return preview_key(key, RenderSettings.from_dict(row.settings))
    return key


def claimed_job(row: AnyRow, *, number: int) -> ClaimedJob:
    """The job of a row that `claiming` read."""
    settings = RenderSettings.from_dict(row.settings)
    if row.purpose is JobPurpose.PREVIEW:
        settings = preview_settings(settings)
    return ClaimedJob(
        job_id=row.job_id,
        variant_id=row.variant_id,
        batch_id=row.batch_id,
        workspace_id=row.workspace_id,
        purpose=row.purpose,
        number=number,
        variant_key=effective_key(row),
        prompt=row.prompt,
        negative_prompt=row.negative_prompt,
        slots=tuple(PromptSlot.from_dict(slot) for slot in row.slots),
        seed=row.seed,
        settings=settings,
        work_units=row.work_units,
        shared_units=row.shared_units,
        fork_steps=row.fork_steps,
        draft_id=row.draft_id,
    )
