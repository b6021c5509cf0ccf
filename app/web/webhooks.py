"""Webhook pages: endpoints, their secrets shown once, deliveries with every attempt, replay."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session
from werkzeug.exceptions import NotFound as NoSuchPage

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.models import WebhookDeliveryState, WebhookEndpoint, WebhookEventType
from app.services import webhooks, webhooks_log
from app.services.webhook_delivery_schedule import DISABLE_AFTER, MAX_ATTEMPTS
from app.services.webhooks_log import DeliverySummary
from app.web.formatting import count, duration
from app.web.scope import page, signed_in, start_over

blueprint = Blueprint("webhooks", __name__, url_prefix="/settings/webhooks")

EVENT_WORDS = {
    WebhookEventType.BATCH_EXPANDED: "All variants of a launched batch exist.",
    WebhookEventType.BATCH_PROGRESSED: "A batch has passed 25, 50 or 75 %.",
    WebhookEventType.BATCH_COMPLETED: "A batch has ended, with counts and spend.",
    WebhookEventType.BATCH_FAILED: "A batch could not be expanded; the reason comes along.",
    WebhookEventType.BATCH_CANCELLED: "A cancelled batch has ended.",
    WebhookEventType.BUDGET_REACHED: "A batch has reached its spend cap and pauses.",
    WebhookEventType.VARIANT_COMPLETED: "Variants have ended, up to 50 in one message.",
    WebhookEventType.REVIEW_COMPLETED: "Every variant of a batch is approved or rejected.",
    WebhookEventType.ENDPOINT_DISABLED: "A webhook endpoint was switched off.",
}
STATE_WORDS = {
    WebhookDeliveryState.PENDING: "On its way",
    WebhookDeliveryState.SUCCEEDED: "Delivered",
    WebhookDeliveryState.FAILED: "Failed",
    WebhookDeliveryState.HELD: "Held back",
}
STATE_CHIPS = {
    WebhookDeliveryState.PENDING: "retryable",
    WebhookDeliveryState.SUCCEEDED: "succeeded",
    WebhookDeliveryState.FAILED: "failed",
    WebhookDeliveryState.HELD: "paused",
}
REPLAY_SPANS = {
    "hour": ("the last hour", timedelta(hours=1)),
    "day": ("the last 24 hours", timedelta(days=1)),
    "week": ("the last 7 days", timedelta(days=7)),
    "all": ("the last 30 days", None),
}
# The log looks again by itself while something is due so soon.
SOON_S = 60

Verb = Callable[[Session, Actor, UUID], object]
VERBS: dict[str, tuple[Verb, str]] = {
    "ping": (webhooks.ping, "A test message is on its way. The answer appears below."),
    "enable": (webhooks.enable_endpoint, "Switched on. What was held back waits for a replay."),
    "disable": (webhooks.disable_endpoint, "Switched off. What happens meanwhile is held back."),
}


@dataclass(frozen=True, kw_only=True)
class DeliveryLine:
    """A delivery as the log shows it."""

    summary: DeliverySummary
    chip: str
    word: str
    note: str


@blueprint.get("")
@signed_in
def index(session: Session, actor: Actor) -> ResponseReturnValue:
    return page(
        "webhooks/index.html",
        endpoints=webhooks.list_endpoints(session, actor),
        max_endpoints=webhooks.MAX_ENDPOINTS,
    )


@blueprint.get("/new")
@signed_in
def new(session: Session, actor: Actor) -> ResponseReturnValue:
    require(actor, Action.MANAGE)
    return _form_page(url="", description="", event_types=webhooks.DEFAULT_TYPES)


@blueprint.post("/new")
@signed_in
def create(session: Session, actor: Actor) -> ResponseReturnValue:
    """Make the endpoint and show its secret in the answer itself: it is kept nowhere readable."""
    form = _read_form()
    try:
        endpoint, secret = webhooks.create_endpoint(session, actor, **form)
    except InvalidInput as error:
        start_over(session, actor)
        return _form_page(**form, error=error)
    return _secret_page(endpoint, secret)


@blueprint.get("/<uuid:endpoint_id>")
@signed_in
def show(session: Session, actor: Actor, endpoint_id: UUID) -> ResponseReturnValue:
    endpoint = webhooks.get_endpoint(session, actor, endpoint_id)
    state = _chosen_state()
    before = request.args.get("before", type=UUID)
    found = webhooks_log.list_deliveries(
        session, actor, endpoint_id=endpoint_id, state=state, before=before
    )
    counts = webhooks_log.count_deliveries(session, actor, endpoint_id)
    now = datetime.now(UTC)
    return page(
        "webhooks/show.html",
        endpoint=endpoint,
        event_words=EVENT_WORDS,
        deliveries=[_line(summary, now) for summary in found],
        counts=[(item, STATE_WORDS[item], counts.get(item, 0)) for item in WebhookDeliveryState],
        state=state,
        is_waiting=any(_is_soon(summary, now) for summary in found),
        next_before=found[-1].id if len(found) == webhooks_log.MAX_DELIVERIES else None,
        failed=counts.get(WebhookDeliveryState.FAILED, 0),
        held=counts.get(WebhookDeliveryState.HELD, 0),
        replay_spans=REPLAY_SPANS,
        max_attempts=MAX_ATTEMPTS,
        disable_after_days=DISABLE_AFTER.days,
        now=now,
    )


@blueprint.get("/<uuid:endpoint_id>/edit")
@signed_in
def edit(session: Session, actor: Actor, endpoint_id: UUID) -> ResponseReturnValue:
    endpoint = webhooks.get_endpoint(session, actor, endpoint_id)
    return _form_page(
        url=endpoint.url,
        description=endpoint.description,
        event_types=endpoint.event_types,
        endpoint=endpoint,
    )


@blueprint.post("/<uuid:endpoint_id>/edit")
@signed_in
def update(session: Session, actor: Actor, endpoint_id: UUID) -> ResponseReturnValue:
    form = _read_form()
    try:
        webhooks.update_endpoint(session, actor, endpoint_id, **form)
    except InvalidInput as error:
        start_over(session, actor)
        endpoint = webhooks.get_endpoint(session, actor, endpoint_id)
        return _form_page(**form, endpoint=endpoint, error=error)
    flash("Saved.", "success")
    return _go_to(endpoint_id)


@blueprint.post("/<uuid:endpoint_id>/rotate")
@signed_in
def rotate(session: Session, actor: Actor, endpoint_id: UUID) -> ResponseReturnValue:
    at_once = request.form.get("at_once") == "1"
    endpoint, secret = webhooks.rotate_secret(session, actor, endpoint_id, at_once=at_once)
    return _secret_page(endpoint, secret, is_rotated=True)


@blueprint.post("/<uuid:endpoint_id>/delete")
@signed_in
def delete(session: Session, actor: Actor, endpoint_id: UUID) -> ResponseReturnValue:
    webhooks.delete_endpoint(session, actor, endpoint_id)
    flash("Deleted. Nothing is sent there any more.", "success")
    return redirect(url_for("webhooks.index"))


@blueprint.post("/<uuid:endpoint_id>/replay")
@signed_in
def replay(session: Session, actor: Actor, endpoint_id: UUID) -> ResponseReturnValue:
    """Send again what failed or was held back within the chosen time."""
    _, span = REPLAY_SPANS.get(request.form.get("since", ""), REPLAY_SPANS["all"])
    since = datetime.now(UTC) - span if span else None
    number = webhooks.replay_failed(session, actor, endpoint_id, since=since)
    if number:
        flash(f"{count(number, 'message')} on the way again, under the same ids.", "success")
    else:
        flash("Nothing failed or was held back in that time.", "info")
    return _go_to(endpoint_id)


@blueprint.post("/<uuid:endpoint_id>/<verb>")
@signed_in
def act(session: Session, actor: Actor, endpoint_id: UUID, verb: str) -> ResponseReturnValue:
    """Ping, enable or disable."""
    if verb not in VERBS:
        raise NoSuchPage
    perform, done = VERBS[verb]
    perform(session, actor, endpoint_id)
    flash(done, "success")
    return _go_to(endpoint_id)


@blueprint.get("/deliveries/<uuid:delivery_id>")
@signed_in
def delivery(session: Session, actor: Actor, delivery_id: UUID) -> ResponseReturnValue:
    details = webhooks_log.get_delivery(session, actor, delivery_id)
    now = datetime.now(UTC)
    return page(
        "webhooks/delivery.html",
        endpoint=webhooks.get_endpoint(session, actor, details.summary.endpoint_id),
        line=_line(details.summary, now),
        body=json.dumps(json.loads(details.body), indent=2, ensure_ascii=False),
        attempts=details.attempts,
        is_waiting=_is_soon(details.summary, now),
    )


@blueprint.post("/deliveries/<uuid:delivery_id>/replay")
@signed_in
def replay_one(session: Session, actor: Actor, delivery_id: UUID) -> ResponseReturnValue:
    webhooks.replay_delivery(session, actor, delivery_id)
    flash("On the way again, under the same id.", "success")
    return redirect(url_for("webhooks.delivery", delivery_id=delivery_id))


def _read_form() -> dict[str, Any]:
    return {
        "url": request.form.get("url", "").strip(),
        "description": request.form.get("description", ""),
        "event_types": request.form.getlist("event_types"),
    }


def _form_page(
    *,
    url: str,
    description: str,
    event_types: Any,
    endpoint: WebhookEndpoint | None = None,
    error: InvalidInput | None = None,
) -> Response:
    return page(
        "webhooks/form.html",
        status=error.status if error else 200,
        url=url,
        description=description,
        chosen=set(event_types),
        endpoint=endpoint,
        event_words=EVENT_WORDS,
        errors={error.field or "form": error.message} if error else {},
    )


def _secret_page(endpoint: WebhookEndpoint, secret: str, *, is_rotated: bool = False) -> Response:
    response = page("webhooks/secret.html", endpoint=endpoint, secret=secret, is_rotated=is_rotated)
    response.headers["Cache-Control"] = "no-store"
    return response


def _chosen_state() -> WebhookDeliveryState | None:
    value = request.args.get("state", "")
    return WebhookDeliveryState(value) if value in set(WebhookDeliveryState) else None


def _line(summary: DeliverySummary, now: datetime) -> DeliveryLine:
    return DeliveryLine(
        summary=summary,
        chip=STATE_CHIPS[summary.state],
        word=STATE_WORDS[summary.state],
        note=_note(summary, now),
    )


def _note(summary: DeliverySummary, now: datetime) -> str:
    """The last answer, and when it is tried again."""
    said = summary.last_error or (f"Answered {summary.last_status}." if summary.last_status else "")
    if summary.next_attempt_at is None:
        return said
    wait_s = (summary.next_attempt_at - now).total_seconds()
    when = f"Next attempt in {duration(wait_s)}." if wait_s > 0 else "Being sent."
    return f"{said} {when}".strip()


def _is_soon(summary: DeliverySummary, now: datetime) -> bool:
    due_at = summary.next_attempt_at
    return due_at is not None and (due_at - now).total_seconds() < SOON_S


def _go_to(endpoint_id: UUID) -> ResponseReturnValue:
    return redirect(url_for("webhooks.show", endpoint_id=endpoint_id))
