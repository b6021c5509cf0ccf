"""Campaign pages: the list, the form for new and existing campaigns, one campaign."""

from __future__ import annotations

from uuid import UUID

from flask import Blueprint, Response, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.models import Campaign
from app.services import batches, campaigns
from app.services.blocked_terms import load_index
from app.services.campaign_copies import (
    duplicate_campaign,
    find_archived,
    has_archived,
    restore_campaign,
)
from app.services.prompts import parse_prompt
from app.web import presets
from app.web.batch_specs import spec_from_form
from app.web.campaign_form import CampaignForm, form_of, new_form, read_form
from app.web.cards import batch_rows, campaign_cards
from app.web.facts import settings_facts
from app.web.previews import build_preview, model_context
from app.web.prompt_parts import from_template
from app.web.scope import current_frame, page, signed_in, start_over
from engine.registry import ModelSpec, is_installed, list_models

blueprint = Blueprint("campaigns", __name__)

# Fields that show their own error; parameters do, too.
FIELDS = (
    "name",
    "prompt",
    "negative_prompt",
    "parameters",
    "rules",
    "sample_size",
    "size",
    "task",
    "seed",
    "takes",
)


@blueprint.get("/")
@signed_in
def index(session: Session, actor: Actor) -> ResponseReturnValue:
    """The campaigns, or those in the archive; what was archived last can be taken back."""
    search = request.args.get("q", "").strip()[:200]
    is_archive = request.args.get("show") == "archived"
    undo = request.args.get("undo", type=UUID)
    return page(
        "campaigns/index.html",
        campaigns=campaign_cards(session, actor, search=search, is_archive=is_archive),
        search=search,
        is_archive=is_archive,
        has_archived=has_archived(session, actor),
        undo=find_archived(session, actor, undo) if undo else None,
    )


@blueprint.post("/campaigns/<uuid:campaign_id>/duplicate")
@signed_in
def duplicate(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    copy = duplicate_campaign(session, actor, campaign_id)
    flash("This is the copy. Give it a name of its own.", "success")
    return redirect(url_for("campaigns.edit", campaign_id=copy.id))


@blueprint.post("/campaigns/<uuid:campaign_id>/archive")
@signed_in
def archive(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    campaigns.archive_campaign(session, actor, campaign_id)
    return redirect(url_for("campaigns.index", undo=campaign_id))


@blueprint.post("/campaigns/<uuid:campaign_id>/restore")
@signed_in
def restore(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    campaign = restore_campaign(session, actor, campaign_id)
    flash(f"“{campaign.name}” is back.", "success")
    return redirect(url_for("campaigns.index"))


@blueprint.get("/campaigns/new")
@signed_in
def new(session: Session, actor: Actor) -> ResponseReturnValue:
    require(actor, Action.EDIT)
    return _form_page(session, actor, new_form())


@blueprint.post("/campaigns/new")
@signed_in
def create(session: Session, actor: Actor) -> ResponseReturnValue:
    require(actor, Action.EDIT)
    form = read_form(request.form)
    try:
        settings = form.campaign_settings()
        campaign = campaigns.create_campaign(
            session, actor, name=form.name, brief=form.brief, settings=settings
        )
        return _save(session, actor, campaign, form)
    except InvalidInput as error:
        start_over(session, actor)
        return _form_page(session, actor, form, error=error)


@blueprint.get("/campaigns/<uuid:campaign_id>")
@signed_in
def show(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    details = campaigns.get_campaign(session, actor, campaign_id)
    form = form_of(details)
    return page(
        "campaigns/show.html",
        campaign=details.campaign,
        batches=batch_rows(session, actor, campaign_id),
        prompt_parts=from_template(parse_prompt(form.prompt), form.kinds),
        parameters=form.parameters,
        settings_facts=settings_facts(details.campaign.settings),
    )


@blueprint.get("/campaigns/<uuid:campaign_id>/edit")
@signed_in
def edit(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    require(actor, Action.EDIT)
    details = campaigns.get_campaign(session, actor, campaign_id)
    return _form_page(session, actor, form_of(details), campaign=details.campaign)


@blueprint.post("/campaigns/<uuid:campaign_id>/edit")
@signed_in
def update(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    form = read_form(request.form)
    try:
        campaign = campaigns.update_campaign(
            session,
            actor,
            campaign_id,
            name=form.name,
            brief=form.brief,
            settings=form.campaign_settings(),
        )
        return _save(session, actor, campaign, form)
    except InvalidInput as error:
        start_over(session, actor)
        details = campaigns.get_campaign(session, actor, campaign_id)
        return _form_page(session, actor, form, campaign=details.campaign, error=error)


def _save(
    session: Session, actor: Actor, campaign: Campaign, form: CampaignForm
) -> ResponseReturnValue:
    """Prompt and values of a campaign, and where the pressed button leads."""
    campaigns.save_prompt_template(
        session, actor, campaign.id, text=form.prompt, negative_text=form.negative_prompt
    )
    fitted = form.with_placeholders(campaigns.placeholder_names(form.prompt, form.negative_prompt))
    campaigns.set_parameters(session, actor, campaign.id, fitted.parameter_inputs())
    then = request.form.get("then")
    if then == "quote":
        batch = batches.create_batch(
            session, actor, campaign_id=campaign.id, spec=spec_from_form(fitted)
        )
        return redirect(url_for("batches.show", batch_id=batch.id))
    if then == "upload":
        return redirect(url_for("uploads.new", campaign_id=campaign.id))
    flash("Saved.", "success")
    return redirect(url_for("campaigns.show", campaign_id=campaign.id))


def _form_page(
    session: Session,
    actor: Actor,
    form: CampaignForm,
    *,
    campaign: Campaign | None = None,
    error: InvalidInput | None = None,
) -> Response:
    preview, fitted = build_preview(
        form,
        max_variants=current_frame().max_variants,
        terms=load_index(session, actor.workspace_id),
    )
    field = error.field or "form" if error else "form"
    is_told = field in {*FIELDS, *(item.name for item in fitted.parameters)}
    return page(
        "campaigns/form.html",
        status=error.status if error else 200,
        form=fitted,
        preview=preview,
        campaign=campaign,
        errors={field: error.message} if error else {},
        # An error without a place on the form is told above it.
        is_elsewhere=not is_told and not preview.overrun,
        models=[spec for spec in list_models() if _is_offered(spec, fitted.model)],
        modes=presets.MODES,
        **model_context(fitted),
        profiles=presets.PROFILES,
        suggestions=presets.SUGGESTIONS,
    )


def _is_offered(spec: ModelSpec, chosen: ModelSpec) -> bool:
    """Models that render a prompt and whose weights are here, and the one that a campaign has."""
    can_render = any(task in spec.tasks for task, *_ in presets.TASKS)
    return spec.model_id == chosen.model_id or (can_render and is_installed(spec.model_id))
