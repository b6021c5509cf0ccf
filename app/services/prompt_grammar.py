"""What may stand in a prompt template: the allowed nodes of Jinja's syntax tree, all else refused.

Allowed are names, texts in quotes, `{% if %}` on names and comparisons with texts, and the
filters of `FILTERS`. The list is short on purpose: each entry must stay harmless with any value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from jinja2 import nodes

from app.services.prompt_advice import MAX_NAME_LENGTH, advise, first_name
from app.services.prompt_syntax import PromptFinding, make_finding, parse, tag_at

FILTERS: Final = (
    *("lower", "upper", "title", "capitalize", "trim", "default", "truncate", "landmark"),
)
MAX_DEPTH: Final = 10
MAX_TRUNCATE_LENGTH: Final = 500
COMPARISONS: Final = frozenset({"eq", "ne", "in", "notin"})

_BRACES = re.compile(r"(?<!\{)\{\s*(?P<name>[^\W\d]\w*)\s*\}(?!\})|\}\}|%\}|#\}")
_ONLY_STATEMENTS = "only {% if %}, {% elif %}, {% else %} and {% endif %} are allowed here"
_ONLY_EXPRESSIONS = (
    "only a name, a text in quotes and filters are allowed here; write one name, such as {{ city }}"
)
_ONLY_CONDITIONS = 'ask for a name or compare it with a text, as in {% if market == "US" %}'


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """A name in a template; `is_required` says that it is printed and must have a value."""

    name: str
    offset: int
    filters: tuple[str, ...] = ()
    is_required: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckedTemplate:
    """Statements with every name in them; to be trusted only without findings."""

    body: tuple[nodes.Node, ...]
    occurrences: tuple[Occurrence, ...]
    findings: tuple[PromptFinding, ...]


def check(source: str) -> CheckedTemplate:
    """Parse a template (line ends already \\n) and report everything that is not allowed."""
    body, findings = parse(source)
    walk = _Walk(source)
    try:
        walk.statements(body)
    except RecursionError:
        findings.append(make_finding(source, 0, "the template is nested too deeply"))
    findings += walk.findings
    return CheckedTemplate(
        body=tuple(body),
        occurrences=tuple(sorted(walk.occurrences, key=lambda item: item.offset)),
        findings=tuple(sorted(findings, key=lambda item: (item.line, item.column))),
    )


class _Walk:
    """One pass over a syntax tree; collects names and refuses what is not listed."""

    def __init__(self, source: str) -> None:
        self.findings: list[PromptFinding] = []
        self.occurrences: list[Occurrence] = []
        self._source = source

    def statements(
        self, body: Sequence[nodes.Node], *, guards: frozenset[str] = frozenset(), depth: int = 0
    ) -> None:
        """`guards` are the names that an enclosing {% if %} has asked for."""
        for node in body:
            if isinstance(node, nodes.Output):
                for child in node.nodes:
                    self._printed(child, guards)
            elif isinstance(node, nodes.If):
                self._branches(node, guards, depth)
            else:
                self._refuse(node, _ONLY_STATEMENTS)

    def _branches(self, node: nodes.If, guards: frozenset[str], depth: int) -> None:
        if depth >= MAX_DEPTH:
            self._report(node, f"{{% if %}} stands more than {MAX_DEPTH} levels deep")
            return
        for branch in (node, *node.elif_):
            names = self._condition(branch.test)
            self.statements(branch.body, guards=guards | names, depth=depth + 1)
        self.statements(node.else_, guards=guards, depth=depth + 1)

    def _printed(self, node: nodes.Node, guards: frozenset[str]) -> None:
        if isinstance(node, nodes.TemplateData):
            self._plain_text(node)
            return
        filters: list[str] = []
        inner = node
        while isinstance(inner, nodes.Filter) and inner.node is not None:
            problem = _filter_problem(inner)
            if len(filters) >= MAX_DEPTH:
                problem = f"a placeholder has at most {MAX_DEPTH} filters"
            if problem:
                self._report(inner, problem)
                return
            filters.insert(0, inner.name)
            inner = inner.node
        if isinstance(inner, nodes.Name):
            is_required = "default" not in filters and inner.name not in guards
            self._name(inner, filters=tuple(filters), is_required=is_required)
        elif not _is_text(inner):
            self._refuse(inner, _ONLY_EXPRESSIONS)

    def _condition(self, node: nodes.Node, *, depth: int = 0) -> frozenset[str]:
        """Check a test of {% if %} and return the names in it."""
        if depth >= MAX_DEPTH:
            self._report(node, f"the condition is nested more than {MAX_DEPTH} levels deep")
        elif isinstance(node, nodes.Name):
            return self._name(node)
        elif isinstance(node, nodes.Not):
            return self._condition(node.node, depth=depth + 1)
        elif isinstance(node, nodes.And | nodes.Or):
            left = self._condition(node.left, depth=depth + 1)
            return left | self._condition(node.right, depth=depth + 1)
        elif isinstance(node, nodes.Compare):
            return self._comparison(node)
        elif not isinstance(node, nodes.Const):
            self._refuse(node, _ONLY_CONDITIONS)
        return frozenset()

    def _comparison(self, node: nodes.Compare) -> frozenset[str]:
        if len(node.ops) != 1 or node.ops[0].op not in COMPARISONS:
            self._report(node.expr, "values are text; compare them with one of ==, !=, in, not in")
            return frozenset()
        operator, right = node.ops[0].op, node.ops[0].expr
        sides: list[nodes.Node] = [node.expr, right]
        if operator in ("in", "notin") and isinstance(right, nodes.List | nodes.Tuple):
            sides = [node.expr, *right.items]
        names: frozenset[str] = frozenset()
        for side in sides:
            if isinstance(side, nodes.Name):
                names |= self._name(side)
            elif isinstance(side, nodes.Const) and not _is_text(side):
                self._report(side, 'values are text; put it in quotes, as in == "3"')
            elif not _is_text(side):
                self._refuse(side, _ONLY_CONDITIONS)
        return names

    def _name(
        self, node: nodes.Name, *, filters: tuple[str, ...] = (), is_required: bool = False
    ) -> frozenset[str]:
        if len(node.name) > MAX_NAME_LENGTH:
            self._report(node, f"a name has at most {MAX_NAME_LENGTH} characters")
            return frozenset()
        self.occurrences.append(
            Occurrence(name=node.name, offset=node.lineno, filters=filters, is_required=is_required)
        )
        return frozenset({node.name})

    def _plain_text(self, node: nodes.TemplateData) -> None:
        for match in _BRACES.finditer(node.data):
            name = match["name"]
            message = (
                f"a placeholder has two braces on each side; write {{{{ {name} }}}}"
                if name
                else f'this closes nothing; to show it, write {{{{ "{match[0]}" }}}}'
            )
            offset = node.lineno + match.start()
            finding = make_finding(self._source, offset, message, name)
            self.findings.append(replace(finding, written=" ".join(match[0].split())))

    def _refuse(self, node: nodes.Node, otherwise: str) -> None:
        self._report(node, advise(node, otherwise))

    def _report(self, node: nodes.Node, message: str) -> None:
        offset = node.lineno
        finding = make_finding(self._source, offset, message, first_name(node))
        self.findings.append(replace(finding, written=tag_at(self._source, offset)))


def _is_text(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


def _filter_problem(node: nodes.Filter) -> str | None:
    if node.name not in FILTERS:
        near = get_close_matches(node.name, FILTERS, n=1)
        hint = f"; write “{near[0]}”" if near else f"; there are {', '.join(FILTERS)}"
        return f"there is no filter “{node.name}”{hint}"
    is_plain = not (node.kwargs or node.dyn_args or node.dyn_kwargs)
    if node.name == "default":
        if is_plain and len(node.args) == 1 and _is_text(node.args[0]):
            return None
        return '“default” needs one text in quotes, as in {{ name|default("anywhere") }}'
    if node.name == "truncate":
        if is_plain and len(node.args) == 1 and _is_length(node.args[0]):
            return None
        return (
            f"“truncate” needs one length from 1 to {MAX_TRUNCATE_LENGTH}, as in"
            " {{ name|truncate(40) }}"
        )
    if node.args or not is_plain:
        return f"“{node.name}” takes nothing in parentheses; write {{{{ name|{node.name} }}}}"
    return None


def _is_length(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.Const)
        and type(node.value) is int
        and 1 <= node.value <= MAX_TRUNCATE_LENGTH
    )
