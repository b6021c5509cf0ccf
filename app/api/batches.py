"""Batches: quoted, launched, watched, paused, cancelled, tried again."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from app.access import Action
from app.api.batch_specs import spec_of_request
from app.api.cursors import read_id_cursor
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.base import paged
from app.api.schemas.batches import (
    Batch,
    BatchCreate,
    BatchInput,
    BatchPage,
    BatchQuery,
    BatchSummary,
    PreviewCreate,
    PreviewsStarted,
    PromotionCreate,
    Quote,
    QuoteCreate,
    Retried,
    SpendCap,
)
from app.models import Batch as BatchRow
from app.models import BatchState
from app.models import Quote as QuoteRow
from app.services import batches, previews, promotions
from app.services.progress import binding_quote
from app.services.promotions import APPROVED
from app.services.scoping import get_in_workspace
from app.services.variant_views import VariantFilter

routes = Routes()
TAG: Final = "Batches"
QUOTES: Final = "Quotes"
ONE: Final = "/batches/<uuid:batch_id>"


def _change(verb: str, summary: str) -> Route[Empty, Empty]:
    return Route(
        method="POST",
        path=f"{ONE}/{verb}",
        kind=RouteKind.OBJECT,
        action=Action.LAUNCH,
        tag=TAG,
        summary=summary,
        answer=Batch,
    )


@routes.add(
    Route(
        method="POST",
        path="/quotes",
        kind=RouteKind.CREATE,
        action=Action.EDIT,
        tag=QUOTES,
        summary="Price a batch; it exists from then on, in preview, and costs nothing yet",
        answer=Quote,
        body=QuoteCreate,
        status=201,
    )
)
def create_quote(call: Call[QuoteCreate, Empty]) -> Quote:
    batch = _create(call)
    return Quote.of(binding_quote(call.session, batch.id))


@routes.add(
    Route(
        method="GET",
        path="/quotes/<uuid:quote_id>",
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag=QUOTES,
        summary="Get a quote",
        answer=Quote,
    )
)
def get_quote(call: Call[Empty, Empty], quote_id: UUID) -> Quote:
    return Quote.of(get_in_workspace(call.session, call.actor, QuoteRow, quote_id))


@routes.add(
    Route(
        method="GET",
        path="/batches",
        kind=RouteKind.COLLECTION,
        action=Action.VIEW,
        tag=TAG,
        summary="List batches, the newest first",
        answer=BatchPage,
        query=BatchQuery,
    )
)
def list_batches(call: Call[Empty, BatchQuery]) -> BatchPage:
    rows = batches.list_batches(
        call.session,
        call.actor,
        campaign_id=call.query.campaign_id,
        limit=call.query.limit + 1,
        before=read_id_cursor(call.actor, call.query.cursor),
    )
    data, cursor = paged(call, rows, BatchSummary.of_row, lambda row: row.id)
    return BatchPage(data=data, next_cursor=cursor)


@routes.add(
    Route(
        method="POST",
        path="/batches",
        kind=RouteKind.CREATE,
        action=Action.EDIT,
        tag=TAG,
        summary="Make a batch with its quote, and launch it if asked",
        answer=Batch,
        body=BatchCreate,
        status=201,
    )
)
def create_batch(call: Call[BatchCreate, Empty]) -> Batch:
    batch = _create(call)
    if (cap_micros := call.body.spend_cap_micros) is not None:
        batches.set_spend_cap(call.session, call.actor, batch.id, spend_cap_micros=cap_micros)
    if call.body.launch:
        batches.launch_batch(call.session, call.actor, batch.id)
    return show_batch(call, batch)


@routes.add(
    Route(
        method="GET",
        path=ONE,
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag=TAG,
        summary="Get a batch with its quote and its progress",
        answer=Batch,
    )
)
def get_batch(call: Call[Empty, Empty], batch_id: UUID) -> Batch:
    return show_batch(call, batches.get_batch(call.session, call.actor, batch_id))


@routes.add(
    Route(
        method="POST",
        path=f"{ONE}/previews",
        kind=RouteKind.OBJECT,
        action=Action.EDIT,
        tag=TAG,
        summary="Render a few variants quickly before the launch, free of charge",
        answer=PreviewsStarted,
        body=PreviewCreate,
        status=202,
    )
)
def create_previews(call: Call[PreviewCreate, Empty], batch_id: UUID) -> PreviewsStarted:
    jobs = previews.render_preview(call.session, call.actor, batch_id, call.body.ordinals)
    return PreviewsStarted(batch_id=batch_id, started=len(jobs))


@routes.add(
    Route(
        method="POST",
        path=f"{ONE}/promotions",
        kind=RouteKind.OBJECT,
        action=Action.EDIT,
        tag=TAG,
        summary="Finish drafts in full quality: a batch with its quote, launched if asked",
        answer=Batch,
        body=PromotionCreate,
        status=201,
    )
)
def create_promotion(call: Call[PromotionCreate, Empty], batch_id: UUID) -> Batch:
    ids = call.body.variant_ids
    wanted = VariantFilter(ids=ids) if ids else APPROVED
    batch = promotions.create_promotion(call.session, call.actor, batch_id, wanted)
    if call.body.launch and batch.state is BatchState.PREVIEWING:
        batches.launch_batch(call.session, call.actor, batch.id)
    return show_batch(call, batch)


@routes.add(_change("launch", "Launch a batch at the price of its quote"))
def launch_batch(call: Call[Empty, Empty], batch_id: UUID) -> Batch:
    return show_batch(call, batches.launch_batch(call.session, call.actor, batch_id))


@routes.add(_change("pause", "Start nothing new; what is being rendered is finished"))
def pause_batch(call: Call[Empty, Empty], batch_id: UUID) -> Batch:
    return show_batch(call, batches.pause_batch(call.session, call.actor, batch_id))


@routes.add(_change("resume", "Go on where the pause began"))
def resume_batch(call: Call[Empty, Empty], batch_id: UUID) -> Batch:
    return show_batch(call, batches.resume_batch(call.session, call.actor, batch_id))


@routes.add(_change("cancel", "End a batch; what is finished stays"))
def cancel_batch(call: Call[Empty, Empty], batch_id: UUID) -> Batch:
    return show_batch(call, batches.cancel_batch(call.session, call.actor, batch_id))


@routes.add(
    Route(
        method="PUT",
        path=f"{ONE}/spend-cap",
        kind=RouteKind.OBJECT,
        action=Action.LAUNCH,
        tag=TAG,
        summary="Change what a batch may spend at most; one that a lower cap held up goes on",
        answer=Batch,
        body=SpendCap,
    )
)
def set_spend_cap(call: Call[SpendCap, Empty], batch_id: UUID) -> Batch:
    cap_micros = call.body.spend_cap_micros
    return show_batch(
        call,
        batches.set_spend_cap(call.session, call.actor, batch_id, spend_cap_micros=cap_micros),
    )


@routes.add(
    Route(
        method="POST",
        path=f"{ONE}/retry",
        kind=RouteKind.OBJECT,
        action=Action.LAUNCH,
        tag=TAG,
        summary="Try the failed variants again",
        answer=Retried,
    )
)
def retry_batch(call: Call[Empty, Empty], batch_id: UUID) -> Retried:
    retried = batches.retry_failed(call.session, call.actor, batch_id)
    return Retried(batch_id=batch_id, retried=retried)


def show_batch(call: Call[Any, Any], batch: BatchRow) -> Batch:
    progress = batches.get_progress(call.session, call.actor, batch.id)
    failures = batches.list_failures(call.session, call.actor, batch.id) if progress.failed else []
    return Batch.of(batch, progress, failures)


def _create(call: Call[Any, Empty]) -> BatchRow:
    body: BatchInput = call.body
    return batches.create_batch(
        call.session,
        call.actor,
        campaign_id=body.campaign_id,
        spec=spec_of_request(call.session, call.actor, body),
        upload_id=body.upload_id,
        name=body.name,
    )
