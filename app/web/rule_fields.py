"""Rules of the campaign form: rows of two values and how they go together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from werkzeug.datastructures import MultiDict

from app.errors import InvalidInput
from app.services.specs import SpecRule
from app.services.value_rules import MAX_RULES

VERBS: Final = ("never", "only")


@dataclass(frozen=True, kw_only=True)
class RuleFields:
    """A row of the form; values are written `placeholder=value`, or empty as long as none is."""

    when: str = ""
    verb: str = "never"
    others: str = ""

    @property
    def is_complete(self) -> bool:
        return bool(self.when and self.others)

    def to_rule(self) -> SpecRule:
        """The rule; InvalidInput where both values are of one placeholder."""
        try:
            verb = self.verb if self.verb in VERBS else "never"
            return SpecRule(**{"when": _values(self.when), verb: _values(self.others)})
        except ValidationError:
            name = self.when.partition("=")[0]
            raise InvalidInput(
                f"A rule is about two placeholders; this one names {name} on both sides.",
                field="rules",
            ) from None


def read_rules(data: MultiDict[str, str]) -> tuple[RuleFields, ...]:
    """The rows as they were sent; those without any value are left out."""
    rows = zip(
        data.getlist("rule_when"),
        data.getlist("rule_verb"),
        data.getlist("rule_with"),
        strict=False,
    )
    fields = (RuleFields(when=when, verb=verb, others=others) for when, verb, others in rows)
    return tuple(item for item in fields if item.when or item.others)[:MAX_RULES]


def rules_of_settings(rules: Iterable[dict[str, Any]]) -> tuple[RuleFields, ...]:
    """The rows of the rules that a campaign keeps."""
    found: list[RuleFields] = []
    for stored in rules:
        rule = SpecRule.model_validate(stored)
        verb = "never" if rule.never else "only"
        found.append(RuleFields(when=_text(rule.when), verb=verb, others=_text(rule.others)))
    return tuple(found)


def _values(text: str) -> dict[str, tuple[str, ...]]:
    name, _, value = text.partition("=")
    return {name: (value,)}


def _text(values: dict[str, tuple[str, ...]]) -> str:
    """The one value of a rule that was made on the form."""
    ((name, (value, *_)), *_) = values.items()
    return f"{name}={value}"
