"""The live panel beside the campaign form: count, sample prompts, every error, while typing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from flask import Blueprint, request
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.models import ExpansionMode
from app.services import expansion
from app.services.batch_checks import find_overrun
from app.services.blocked_terms import (
    BlockedTermError,
    in_prompts,
    in_values,
    load_index,
    refuse,
)
from app.services.landmarks import find_no_landmark
from app.services.parameters import clean_values
from app.services.prompts import ParsedPrompt, PromptError, parse_prompt
from app.services.specs import check_ruled, with_rules
from app.services.term_index import TermIndex
from app.web.campaign_form import CampaignForm, read_form
from app.web.known_words import known_words
from app.web.presets import KINDS, TASKS
from app.web.prompt_parts import PromptPart, from_values
from app.web.scope import current_frame, page, signed_in

blueprint = Blueprint("previews", __name__, url_prefix="/campaigns")

MAX_SAMPLES = 4


@dataclass(frozen=True, kw_only=True)
class Preview:
    """Count and samples, or what is in their way.

    `prompt_problem` says what is wrong with the prompt, a line per fault, and `value_problems`
    what is wrong with values, by parameter; both are shown at their fields. `overrun` says that
    there are more variants than a batch may have, `rule_problem` what is wrong with the rules;
    `problem` is anything else.
    """

    count: int = 0
    formula: str = ""
    samples: Sequence[list[PromptPart]] = ()
    notes: Sequence[str] = ()
    prompt_problem: str = ""
    value_problems: Mapping[str, str] = field(default_factory=dict)
    overrun: str = ""
    rule_problem: str = ""
    problem: str = ""


@blueprint.post("/preview")
@signed_in
def preview(session: Session, actor: Actor) -> ResponseReturnValue:
    require(actor, Action.EDIT)
    form = read_form(request.form)
    result, fitted = build_preview(
        form,
        max_variants=current_frame().max_variants,
        terms=load_index(session, actor.workspace_id),
    )
    # Cards are exchanged only when the placeholders change, so typing in a card is never cut off.
    is_changed = [item.name for item in fitted.parameters] != [
        item.name for item in form.parameters
    ]
    return page(
        "partials/prompt_preview.html",
        preview=result,
        form=fitted,
        kinds=KINDS,
        is_changed=is_changed,
        are_rules_changed=request.form.get("rules_of") != fitted.rules_of,
        is_live=True,
    )


@blueprint.post("/render-options")
@signed_in
def render_options(session: Session, actor: Actor) -> ResponseReturnValue:
    """What another model offers, and the values that it knows."""
    require(actor, Action.EDIT)
    form = read_form(request.form).with_offered()
    return page(
        "campaigns/render_options.html",
        form=form,
        preview=Preview(),
        is_live=True,
        **model_context(form),
    )


def model_context(form: CampaignForm) -> dict[str, Any]:
    """What the form shows of its model."""
    spec = form.model
    return {
        "model": spec,
        "kinds": KINDS,
        "tasks": [item for item in TASKS if item[0] in spec.tasks],
        "known_words": known_words(spec),
    }


def build_preview(
    form: CampaignForm, *, max_variants: int, terms: TermIndex
) -> tuple[Preview, CampaignForm]:
    """What the form would make, and the form with one card per placeholder of its prompt."""
    if not form.prompt:
        return Preview(), form
    try:
        parsed = parse_prompt(form.prompt)
    except PromptError as error:
        return Preview(prompt_problem=error.message), form
    fitted = form.with_placeholders(item.name for item in parsed.placeholders)
    if blocked := list(in_prompts(terms, form.prompt)):
        return Preview(prompt_problem=BlockedTermError(blocked).message), fitted
    if problems := _value_problems(fitted, parsed, terms):
        return Preview(value_problems=problems), fitted
    try:
        return _expand(fitted, parsed, max_variants), fitted
    except InvalidInput as error:
        if error.field == "rules":
            return Preview(rule_problem=error.message), fitted
        return Preview(problem=error.message), fitted


def _value_problems(form: CampaignForm, parsed: ParsedPrompt, terms: TermIndex) -> dict[str, str]:
    problems: dict[str, str] = {}
    for item in form.parameters:
        try:
            values = clean_values(item.name, item.values)
            refuse(in_values(terms, {item.name: values}))
            if item.name in parsed.landmark_names and (problem := find_no_landmark(*item.values)):
                problems[item.name] = f"{problem[0].upper()}{problem[1:]}."
        except InvalidInput as error:
            problems[item.name] = error.message
    return problems


def _expand(form: CampaignForm, parsed: ParsedPrompt, max_variants: int) -> Preview:
    values, kinds = form.values, form.kinds
    optional = {item.name for item in parsed.placeholders if not item.is_required}
    values = {name: given for name, given in values.items() if given or name not in optional}
    empty = [name for name, given in values.items() if not given]
    if empty:
        names = ", ".join(empty)
        return Preview(
            count=0,
            samples=[from_values(parsed, _first_values(values), kinds)],
            notes=[f"Still without values: {names}."],
        )
    mode, takes = form.expansion_mode(), form.takes_count()
    sample_size = form.sample_count()
    seed = form.seed_number()
    rules = form.spec_rules()
    check_ruled(rules, values)
    full = expansion.count(mode, values, sample_size=sample_size) * takes
    values = with_rules(values, rules)
    count = expansion.count(mode, values, sample_size=sample_size) * takes
    if not count:
        raise InvalidInput("These rules leave no combination at all.", field="rules")
    combinations = expansion.expand(mode, values, sample_size=sample_size, sample_seed=seed)
    return Preview(
        count=count,
        overrun=find_overrun(count, max_variants),
        formula=_formula(form, values, takes, left_out=full - count),
        samples=[
            from_values(parsed, combination.values, kinds)
            for combination in islice(combinations, MAX_SAMPLES)
        ],
    )


def _first_values(values: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: given[0] for name, given in values.items() if given}


def _formula(
    form: CampaignForm, values: dict[str, tuple[str, ...]], takes: int, *, left_out: int
) -> str:
    """The count as a product, where it is one."""
    if form.mode != ExpansionMode.CARTESIAN or len(values) < 2:
        return ""
    factors = [f"{len(given)} {name}" for name, given in values.items()]
    if takes > 1:
        factors.append(f"{takes} takes")
    product = " × ".join(factors)
    return f"{product} − {left_out:,} left out" if left_out else product
