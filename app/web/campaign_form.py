"""The campaign form: read from a request or a campaign, checked for what needs no database."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from werkzeug.datastructures import MultiDict

from app.errors import InvalidInput
from app.models import ExpansionMode, ParameterKind
from app.services.campaigns import CampaignDetails
from app.services.parameters import ParameterInput, guess_kind
from app.services.specs import MAX_TAKES, SpecRule
from app.web.known_words import preset_values
from app.web.places import NO_PLACES, PlaceReport, report_places
from app.web.presets import TASKS
from app.web.rule_fields import RuleFields, read_rules, rules_of_settings
from engine.errors import InvalidRequest
from engine.registry import MAX_SEED, ModelSpec, default_settings, get_model, list_models
from engine.types import GenerationTask, QualityProfile, RenderSettings

KINDS = frozenset(kind.value for kind in ParameterKind)
# Seeds are shown to people, so ours stay short.
SEED_RANGE = 1_000_000
# Values of one placeholder that a rule can be made of on the form.
MAX_RULE_VALUES = 500


@dataclass(frozen=True, kw_only=True)
class ParameterFields:
    name: str
    kind: str
    values: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    places: PlaceReport = NO_PLACES


@dataclass(frozen=True, kw_only=True)
class CampaignForm:
    """What the form holds, as typed; `settings()` and `takes_count()` check it."""

    name: str = ""
    brief: str = ""
    prompt: str = ""
    negative_prompt: str = ""
    parameters: tuple[ParameterFields, ...] = ()
    parked: tuple[ParameterFields, ...] = ()
    mode: str = ExpansionMode.CARTESIAN
    sample_size: str = ""
    model_id: str = ""
    size: str = ""
    task: str = GenerationTask.T2V
    profile: str = QualityProfile.CONSISTENT
    seed: str = ""
    takes: str = "1"
    rules: tuple[RuleFields, ...] = ()

    new_rule = RuleFields()
    max_rule_values = MAX_RULE_VALUES

    @property
    def model(self) -> ModelSpec:
        known = {spec.model_id: spec for spec in list_models()}
        return known.get(self.model_id) or list_models()[0]

    @property
    def kinds(self) -> dict[str, str]:
        return {item.name: item.kind for item in self.parameters}

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """Values by parameter; line by line a repeated value is meant, elsewhere it is a slip."""
        return {
            item.name: item.values
            if self.mode == ExpansionMode.ZIP
            else tuple(dict.fromkeys(item.values))
            for item in self.parameters
        }

    @property
    def rule_keys(self) -> set[str]:
        """The values that rules can be made of, as the form writes them."""
        return {
            f"{item.name}={value}" for item in self.parameters for value in self.rule_values(item)
        }

    @property
    def rules_of(self) -> str:
        """Changes with what rules can be made of, so that they are offered anew."""
        offered = [(item.name, self.rule_values(item)) for item in self.parameters]
        return f"{crc32(repr(offered).encode()):08x}"

    @property
    def has_hidden_values(self) -> bool:
        return any(len({*item.values}) > MAX_RULE_VALUES for item in self.parameters)

    @staticmethod
    def rule_values(parameter: ParameterFields) -> tuple[str, ...]:
        return tuple(dict.fromkeys(parameter.values))[:MAX_RULE_VALUES]

    def spec_rules(self) -> tuple[SpecRule, ...]:
        """The rules that are filled in; line by line there is nothing to leave out."""
        if self.mode == ExpansionMode.ZIP:
            return ()
        return tuple(item.to_rule() for item in self.rules if item.is_complete)

    def settings(self) -> RenderSettings:
        """The render settings; InvalidInput names the field that is wrong."""
        try:
            spec = get_model(self.model_id)
            size = spec.find_size(self.size)
            if size is None:
                formats = ", ".join(item.label for item in spec.sizes)
                raise InvalidInput(
                    f"{spec.label} has no format {self.size!r}; choose one of {formats}.",
                    field="size",
                )
            task = GenerationTask(self.task)
            if task not in spec.tasks:
                made = "images" if task.is_image else "videos"
                raise InvalidInput(
                    f"{spec.label} makes no {made} from a prompt; choose another output or model.",
                    field="task",
                )
            return default_settings(
                spec.model_id,
                task=task,
                size=size,
                profile=QualityProfile(self.profile),
            )
        except InvalidRequest as error:
            raise InvalidInput(str(error), field=error.field) from None
        except ValueError:
            raise InvalidInput("Choose a format, an output and a quality.", field="size") from None

    def campaign_settings(self) -> dict[str, Any]:
        """What the campaign keeps: render settings, and what a new batch starts from."""
        return {
            **self.settings().to_dict(),
            "mode": self.expansion_mode(),
            "sample_size": self.sample_count(),
            "seed": self.seed_number(),
            "takes": self.takes_count(),
            "rules": [
                item.to_rule().model_dump(mode="json") for item in self.rules if item.is_complete
            ],
        }

    def parameter_inputs(self) -> list[ParameterInput]:
        return [
            ParameterInput(name=item.name, kind=ParameterKind(item.kind), values=item.values)
            for item in self.parameters
        ]

    def expansion_mode(self) -> ExpansionMode:
        try:
            return ExpansionMode(self.mode)
        except ValueError:
            raise InvalidInput("Choose how to combine the values.", field="mode") from None

    def sample_count(self) -> int | None:
        """How many variants to draw, where the mode asks for a sample."""
        if self.mode != ExpansionMode.SAMPLED:
            return None
        return _number(self.sample_size, "sample_size", "How many to pick", lowest=1)

    def seed_number(self) -> int:
        return _number(self.seed, "seed", "The seed", lowest=0, highest=MAX_SEED - MAX_TAKES)

    def takes_count(self) -> int:
        return _number(self.takes, "takes", "Takes", lowest=1, highest=MAX_TAKES)

    def with_placeholders(self, names: Iterable[str]) -> CampaignForm:
        """The form with one parameter per placeholder, in the prompt's order.

        Values typed for a placeholder that left the prompt are parked, so they can come back.
        """
        known = {item.name: item for item in (*self.parked, *self.parameters)}
        wanted = list(dict.fromkeys(names))
        parameters = tuple(
            known.get(name) or ParameterFields(name=name, kind=guess_kind(name)) for name in wanted
        )
        parked = tuple(item for name, item in known.items() if name not in wanted and item.values)
        return replace(self, parameters=parameters, parked=parked).with_presets()

    def with_offered(self) -> CampaignForm:
        """The form with a format and an output that its model has, its own wherever it can."""
        spec = self.model
        tasks = [task for task, *_ in TASKS if task in spec.tasks]
        return replace(
            self,
            size=self.size if spec.find_size(self.size) else spec.sizes[0].label,
            task=self.task if self.task in tasks or not tasks else tasks[0],
        ).with_presets()

    def with_presets(self) -> CampaignForm:
        parameters = tuple(
            replace(
                item,
                presets=preset_values(self.model.model_id, item.name, item.kind),
                places=report_places(item.values if item.kind == ParameterKind.GEOGRAPHY else ()),
            )
            for item in self.parameters
        )
        return replace(self, parameters=parameters)


def new_form() -> CampaignForm:
    """An empty form with the first model's defaults and a fresh seed."""
    spec = list_models()[0]
    return CampaignForm(
        model_id=spec.model_id,
        size=spec.sizes[0].label,
        seed=str(secrets.randbelow(SEED_RANGE)),
    )


def read_form(data: MultiDict[str, str]) -> CampaignForm:
    """The form as it was sent; nothing is refused here."""
    return CampaignForm(
        name=data.get("name", "").strip(),
        brief=data.get("brief", "").strip(),
        prompt=data.get("prompt", "").replace("\r\n", "\n").strip(),
        negative_prompt=data.get("negative_prompt", "").strip(),
        parameters=_read_parameters(data, data.getlist("parameter")),
        parked=_read_parameters(data, data.getlist("parked")),
        mode=data.get("mode", ""),
        sample_size=data.get("sample_size", "").strip(),
        model_id=data.get("model_id", ""),
        size=data.get("size", ""),
        task=data.get("task", ""),
        profile=data.get("profile", ""),
        seed=data.get("seed", "").strip(),
        takes=data.get("takes", "").strip(),
        rules=read_rules(data),
    ).with_presets()


def form_of(details: CampaignDetails) -> CampaignForm:
    """The form filled from a saved campaign."""
    campaign, template, settings = details.campaign, details.template, details.campaign.settings
    form = new_form()
    spec = get_model(settings.get("model_id", form.model_id))
    size = spec.find_size(f"{settings.get('width')}x{settings.get('height')}") or spec.sizes[0]
    return replace(
        form,
        name=campaign.name,
        brief=campaign.brief,
        prompt=template.text,
        negative_prompt=template.negative_text,
        parameters=tuple(
            ParameterFields(name=item.name, kind=item.kind, values=tuple(item.values))
            for item in details.parameters
        ),
        model_id=spec.model_id,
        size=size.label,
        task=settings.get("task", form.task),
        profile=settings.get("profile", form.profile),
        mode=settings.get("mode", form.mode),
        sample_size=str(settings.get("sample_size") or ""),
        seed=str(settings.get("seed", form.seed)),
        takes=str(settings.get("takes", form.takes)),
        rules=rules_of_settings(settings.get("rules", ())),
    ).with_presets()


def _read_parameters(
    data: MultiDict[str, str], names: Iterable[str]
) -> tuple[ParameterFields, ...]:
    return tuple(
        ParameterFields(
            name=name,
            kind=_kind(data.get(f"kind:{name}", ""), name),
            values=_lines(data.get(f"values:{name}", "")),
        )
        for name in dict.fromkeys(names)
    )


def _kind(text: str, name: str) -> str:
    return text if text in KINDS else guess_kind(name)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _number(
    text: str, field_name: str, label: str, *, lowest: int, highest: int | None = None
) -> int:
    if not text.isdecimal() or int(text) < lowest or (highest is not None and int(text) > highest):
        limit = f"{lowest:,} or more" if highest is None else f"from {lowest:,} to {highest:,}"
        raise InvalidInput(f"{label}: enter a whole number, {limit}.", field=field_name)
    return int(text)
