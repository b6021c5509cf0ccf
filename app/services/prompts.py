"""Prompt templates: checked text with `{{ placeholders }}`, rendered with a row of values.

Rendering walks the checked syntax tree itself; nothing a person writes is ever compiled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jinja2 import nodes

from app.errors import InvalidInput
from app.services.landmarks import find_no_landmark
from app.services.prompt_filters import apply_filter
from app.services.prompt_grammar import CheckedTemplate, check
from app.services.prompt_syntax import PromptFinding, locate, make_finding

MAX_TEMPLATE_LENGTH: Final = 4_000
# Of a value, typed or in a cell of a table, whether a placeholder takes it or not.
MAX_VALUE_LENGTH: Final = 2_000
MAX_PROMPT_LENGTH: Final = 5_000

# Neither Postgres nor a tokenizer takes these: controls but tab and line end, half surrogates.
CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")

# Name, value as it stands in the prompt, start and end in characters.
Span = tuple[str, str, int, int]


class PromptError(InvalidInput):
    """A template or its values cannot be used; `findings` holds every fault, in text order."""

    code = "invalid_prompt"

    def __init__(self, findings: Sequence[PromptFinding], *, field: str = "prompt") -> None:
        faults = "\n".join(f"{str(item)[:1].upper()}{str(item)[1:]}." for item in findings)
        super().__init__(faults, field=field)
        self.findings = list(findings)


@dataclass(frozen=True, kw_only=True)
class Placeholder:
    """A name that a template uses, at its first place; line and column count from 1.

    One that is not required may stay without a value: it has a default, or an `{% if %}`
    around it asks for it.
    """

    name: str
    line: int
    column: int
    offset: int
    filters: tuple[str, ...]
    is_required: bool


@dataclass(frozen=True, kw_only=True)
class RenderedPrompt:
    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class ParsedPrompt:
    """A template that passed the check."""

    source: str
    placeholders: tuple[Placeholder, ...]
    body: tuple[nodes.Node, ...]
    # Those whose landmark is printed, with nothing in its place where none is known.
    landmark_names: frozenset[str] = frozenset()

    def render(self, values: Mapping[str, str], *, is_sketch: bool = False) -> RenderedPrompt:
        """Put the values in; PromptError names each placeholder without a value, or too long.

        A sketch may have values that are no places: their landmark is “landmark of …”.
        """
        writer = _Writer(self.source, values, is_sketch=is_sketch)
        writer.write(self.body)
        text = "".join(writer.parts)
        if not writer.findings and len(text) > MAX_PROMPT_LENGTH:
            message = (
                f"the prompt comes out with {len(text):,} characters; {MAX_PROMPT_LENGTH:,} are"
                " allowed"
            )
            writer.findings.append(make_finding(self.source, 0, message))
        if writer.findings:
            raise PromptError(writer.findings)
        return RenderedPrompt(text=text, spans=tuple(writer.spans))


def find_excess(value: str) -> str:
    """What is wrong with a value that is too long; empty for one that is not."""
    if len(value) <= MAX_VALUE_LENGTH:
        return ""
    return f"this value has {len(value):,} characters; {MAX_VALUE_LENGTH:,} are allowed"


def parse_prompt(text: str) -> ParsedPrompt:
    """Check a template; PromptError lists every fault with its place and what to write instead."""
    source = text.replace("\r\n", "\n").replace("\r", "\n")
    if not source.strip():
        raise PromptError([make_finding("", 0, "the prompt is empty; describe what to render")])
    if len(source) > MAX_TEMPLATE_LENGTH:
        message = f"the prompt has {len(source):,} characters; {MAX_TEMPLATE_LENGTH:,} are allowed"
        raise PromptError([make_finding(source, MAX_TEMPLATE_LENGTH, message)])
    checked = check(source)
    placeholders = _placeholders(source, checked)
    findings = [*_control_characters(source), *checked.findings, *_confusable(placeholders)]
    if findings:
        raise PromptError(findings)
    landmarks = (
        item.name
        for item in checked.occurrences
        if "landmark" in item.filters and "default" not in item.filters
    )
    return ParsedPrompt(
        source=source,
        placeholders=placeholders,
        body=checked.body,
        landmark_names=frozenset(landmarks),
    )


def optional_names(*texts: str) -> set[str]:
    """Placeholders that may stay empty, because the prompt has a default or a condition."""
    placeholders = [
        item for text in texts if text.strip() for item in parse_prompt(text).placeholders
    ]
    return {item.name for item in placeholders} - {p.name for p in placeholders if p.is_required}


def _placeholders(source: str, checked: CheckedTemplate) -> tuple[Placeholder, ...]:
    required = {item.name for item in checked.occurrences if item.is_required}
    first = {item.name: item for item in reversed(checked.occurrences)}
    placeholders: list[Placeholder] = []
    for item in sorted(first.values(), key=lambda item: item.offset):
        line, column = locate(source, item.offset)
        placeholders.append(
            Placeholder(
                name=item.name,
                line=line,
                column=column,
                offset=item.offset,
                filters=item.filters,
                is_required=item.name in required,
            )
        )
    return tuple(placeholders)


def _control_characters(source: str) -> list[PromptFinding]:
    return [
        make_finding(
            source,
            match.start(),
            f"there is an invisible control character (U+{ord(match[0]):04X}); delete it",
        )
        for match in CONTROL_CHARACTER.finditer(source)
    ]


def _confusable(placeholders: Sequence[Placeholder]) -> list[PromptFinding]:
    """Columns of a table are matched without regard to case, so names may not differ by it."""
    seen: dict[str, str] = {}
    findings: list[PromptFinding] = []
    for item in placeholders:
        other = seen.setdefault(item.name.casefold(), item.name)
        if other != item.name:
            findings.append(
                PromptFinding(
                    message=f"this differs from {{{{ {other} }}}} by capital letters alone;"
                    " use one spelling",
                    line=item.line,
                    column=item.column,
                    placeholder=item.name,
                )
            )
    return findings


class _Writer:
    """One walk over the checked tree that writes the text and notes where each value stands."""

    def __init__(self, source: str, values: Mapping[str, str], *, is_sketch: bool) -> None:
        self.parts: list[str] = []
        self.spans: list[Span] = []
        self.findings: list[PromptFinding] = []
        self._source = source
        self._values = values
        self._is_sketch = is_sketch
        self._length = 0

    def write(self, body: Sequence[nodes.Node]) -> None:
        for node in body:
            if isinstance(node, nodes.Output):
                for child in node.nodes:
                    self._print(child)
            elif isinstance(node, nodes.If):
                self.write(self._chosen(node))

    def _print(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.TemplateData):
            self._append(node.data)
            return
        chain: list[nodes.Filter] = []
        while isinstance(node, nodes.Filter) and node.node is not None:
            chain.append(node)
            node = node.node
        value = self._text(node)
        for step in reversed(chain):
            before, value = value, apply_filter(step, value)
            if self._is_sketch and step.name == "landmark" and not value:
                value = f"landmark of {before}"
        if isinstance(node, nodes.Name):
            self._check_value(node, value)
            self.spans.append((node.name, value, self._length, self._length + len(value)))
        self._append(value)

    def _append(self, text: str) -> None:
        self.parts.append(text)
        self._length += len(text)

    def _check_value(self, node: nodes.Name, value: str) -> None:
        given = self._values.get(node.name, "")
        message = find_excess(given)
        if not value.strip():
            message = find_no_landmark(given) or "there is no value for this placeholder"
        if not message:
            return
        self.findings.append(make_finding(self._source, node.lineno, message, node.name))

    def _chosen(self, node: nodes.If) -> Sequence[nodes.Node]:
        for branch in (node, *node.elif_):
            if self._holds(branch.test):
                return branch.body
        return node.else_

    def _holds(self, test: nodes.Node) -> bool:
        if isinstance(test, nodes.Not):
            return not self._holds(test.node)
        if isinstance(test, nodes.And):
            return self._holds(test.left) and self._holds(test.right)
        if isinstance(test, nodes.Or):
            return self._holds(test.left) or self._holds(test.right)
        if isinstance(test, nodes.Compare):
            return self._compare(test)
        if isinstance(test, nodes.Const):
            return bool(test.value)
        return bool(self._text(test).strip())

    def _compare(self, test: nodes.Compare) -> bool:
        operator, right = test.ops[0].op, test.ops[0].expr
        left = self._text(test.expr)
        if operator == "eq":
            return left == self._text(right)
        if operator == "ne":
            return left != self._text(right)
        # A list holds whole values; a text holds its parts.
        if isinstance(right, nodes.List | nodes.Tuple):
            is_in = left in [self._text(item) for item in right.items]
        else:
            is_in = left in self._text(right)
        return is_in == (operator == "in")

    def _text(self, node: nodes.Node) -> str:
        if isinstance(node, nodes.Name):
            return self._values.get(node.name, "")
        assert isinstance(node, nodes.Const)
        return str(node.value)
