"""The live part of a batch page: counts by state, spend, pace, failures, what may be done."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from app.access import Actor
from app.models import Batch, BatchState, JobState, PauseReason
from app.services import batches
from app.services.batches import Progress
from app.services.completion import WAITING_STATES
from app.services.setbacks import Setback
from app.web.advice import advice_for
from app.web.amounts import write_amount
from app.web.formatting import duration

# In the order of the bar; states without a colour of their own share one.
ENDED_SEGMENTS = (
    (JobState.SUCCEEDED, "succeeded"),
    (JobState.FAILED, "failed"),
    (JobState.QUARANTINED, "failed"),
    (JobState.CANCELLED, "cancelled"),
)
CHIPS = (
    JobState.SUCCEEDED,
    JobState.RUNNING,
    JobState.RETRYABLE,
    JobState.QUEUED,
    JobState.SCHEDULED,
    JobState.FAILED,
    JobState.QUARANTINED,
    JobState.CANCELLED,
)
# What the gallery shows for a chip.
SHOWN_BY = {
    JobState.SUCCEEDED: "succeeded",
    JobState.RUNNING: "running",
    JobState.FAILED: "failed",
    JobState.QUARANTINED: "failed",
    JobState.CANCELLED: "cancelled",
}
LIVE_STATES = frozenset({BatchState.EXPANDING, BatchState.RUNNING, BatchState.PAUSED})
ENDED_STATES = frozenset({BatchState.COMPLETED, BatchState.CANCELLED, BatchState.FAILED})
ACTIONS: dict[BatchState, tuple[str, ...]] = {
    BatchState.EXPANDING: ("pause", "cancel"),
    BatchState.RUNNING: ("pause", "cancel"),
    BatchState.PAUSED: ("resume", "cancel"),
}


def progress_context(session: Session, actor: Actor, batch: Batch) -> dict[str, Any]:
    """What the template of the live part takes; `progress_etag` changes whenever any of it does."""
    progress = batches.get_progress(session, actor, batch.id)
    failures = batches.list_failures(session, actor, batch.id) if progress.failed else []
    took_s = _took_s(batch)
    counts = _counts(batch, progress)
    shown = {
        # What was cancelled has ended, but nobody would call it finished.
        "done": progress.done - progress.counts.get(JobState.CANCELLED, 0),
        "total": progress.total,
        "is_live": batch.state in LIVE_STATES,
        # The last renders of a cancelled batch may still be at their last step.
        "is_watched": batch.state in LIVE_STATES or _is_ending(batch),
        "in_flight": round(progress.in_flight, 2),
        "segments": _segments(counts, progress.in_flight),
        "chips": [
            (state, counts[state], SHOWN_BY.get(state, "waiting"))
            for state in CHIPS
            if counts.get(state)
        ],
        "actions": _actions(batch, progress.failed),
        "failures": failures,
        "setback": progress.setback,
        # In tens of seconds, so that the page does not change with every look.
        "back_in": duration(math.ceil(progress.setback.back_in_s / 10) * 10),
        "currency": progress.quote.currency,
        "spent_micros": progress.cost_micros,
        "quoted_micros": progress.quote.cost_micros,
        "cap_micros": batch.spend_cap_micros,
        "cap_text": write_amount(batch.spend_cap_micros) if batch.spend_cap_micros else "",
        "is_capped_out": batch.state is BatchState.PAUSED
        and batch.pause_reason is PauseReason.BUDGET,
        "full_micros": progress.quote.full_cost_micros,
        "work": _work(progress),
        "phase": progress.phase_words,
        "time_left": duration(progress.eta_s) if progress.eta_s is not None else "",
        "pace": _pace(progress.rate_per_s),
        "took": duration(took_s),
        "per_variant": _per_variant(took_s, progress.counts.get(JobState.SUCCEEDED, 0)),
    }
    etag = _etag(batch.state, batch.failure, {**shown, "setback": _coarse(progress.setback)})
    return {**shown, "advice_for": advice_for, "progress_etag": etag}


def _coarse(setback: Setback) -> Setback:
    """Without its seconds, which the page shows rounded."""
    return replace(setback, back_in_s=0.0)


def _work(progress: Progress) -> dict[str, float]:
    """Work units planned, of each variant alone, and charged so far."""
    quote = progress.quote
    rate = quote.rate_micros_per_unit
    return {
        "planned": quote.shared_units,
        "full": quote.full_units,
        # Of the charge, which is rolled up: the usage of each job is not added up for a page.
        "charged": progress.cost_micros / rate if rate else 0.0,
    }


def _counts(batch: Batch, progress: Progress) -> dict[JobState, int]:
    """Counts by state; what waited in a cancelled batch is cancelled, whoever swept it or not."""
    counts = dict(progress.counts)
    if batch.state is BatchState.CANCELLED:
        waiting = sum(counts.pop(state, 0) for state in WAITING_STATES)
        counts[JobState.CANCELLED] = counts.get(JobState.CANCELLED, 0) + waiting
    return counts


def _is_ending(batch: Batch) -> bool:
    return batch.state is BatchState.CANCELLED and batch.completed_at is None


def _segments(counts: dict[JobState, int], in_flight: float) -> list[tuple[str, float]]:
    """The parts of the bar: what has ended, then what is done and what is left of the running."""
    ended: list[tuple[str, float]] = [(css, counts.get(state, 0)) for state, css in ENDED_SEGMENTS]
    return [
        *ended,
        ("running", in_flight),
        ("claimed", counts.get(JobState.RUNNING, 0) - in_flight),
        ("retryable", counts.get(JobState.RETRYABLE, 0)),
    ]


def _actions(batch: Batch, failed: int) -> list[str]:
    actions = [*ACTIONS.get(batch.state, ())]
    # Only a higher cap lets it go on.
    if batch.pause_reason is PauseReason.BUDGET and "resume" in actions:
        actions.remove("resume")
    if failed and batch.state in (*LIVE_STATES, BatchState.COMPLETED):
        actions.append("retry")
    # What finishes drafts is made on the page of the drafts.
    if batch.state in ENDED_STATES and not batch.spec.get("drafts_batch_id"):
        actions.append("duplicate")
    return actions


def _pace(rate_per_s: float | None) -> str:
    if not rate_per_s:
        return ""
    if rate_per_s >= 1:
        return f"{rate_per_s:.1f} per second"
    return f"one every {duration(1 / rate_per_s)}"


def _took_s(batch: Batch) -> float | None:
    """Seconds from launch to end; None until then, since the clock alone is no news."""
    if batch.launched_at is None or batch.completed_at is None:
        return None
    return (batch.completed_at - batch.launched_at).total_seconds()


def _per_variant(took_s: float | None, finished: int) -> str:
    return f"{took_s / finished:.1f} s" if took_s and finished else ""


def _etag(*shown: object) -> str:
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:24]
