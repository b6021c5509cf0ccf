"""Reading a prompt template into Jinja's syntax tree, with every syntax error explained.

A template is parsed and never compiled, because Jinja computes constant expressions while it
compiles: `{{ "a" * 10 ** 9 }}` would take the machine down before anything could refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.lexer import TokenStream

from app.services.prompt_advice import advise_tag

# After so many faults a person starts again anyway.
MAX_SYNTAX_FINDINGS: Final = 20
# Of a tag in a message.
MAX_WRITTEN_LENGTH: Final = 60

_OPENING = re.compile(r"\{\{|\{%|\{#")
_CLOSINGS: Final = {"{{": "}}", "{%": "%}", "{#": "#}"}
_JINJA_POSITION = re.compile(r" at \d+$")
_BLOCK = re.compile(r"\{%[-+]?\s*(?P<tag>\w*)")
_WORDS = re.compile(r"[\w\s./?!’-]+")
_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, kw_only=True)
class PromptFinding:
    """One fault of a prompt template or of a value; line and column count from 1.

    `written` is the tag in which the fault stands, as it was written; `placeholder` its name.
    """

    message: str
    line: int
    column: int
    placeholder: str | None = None
    written: str | None = None

    def __str__(self) -> str:
        named = self.written or (f"{{{{ {self.placeholder} }}}}" if self.placeholder else "")
        place = f"line {self.line}, column {self.column}"
        return f"{place}, {named}: {self.message}" if named else f"{place}: {self.message}"


class _OffsetEnvironment(Environment):
    """Puts character offsets where Jinja has line numbers, so every node knows its place."""

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        tokens = _with_offsets(source, self.lexer.tokeniter(source, name, filename, state))
        return TokenStream(self.lexer.wrap(tokens, name, filename), name, filename)


_environment = _OffsetEnvironment(optimized=False, keep_trailing_newline=True)
# Nothing could be reached even if something were evaluated.
_environment.filters.clear()
_environment.tests.clear()
_environment.globals.clear()


def parse(source: str) -> tuple[Sequence[nodes.Node], list[PromptFinding]]:
    """The statements of a template whose line ends are \\n; each node's `lineno` is its offset.

    A faulty `{{ … }}` is reported and blanked out, so that one reading finds all of them.
    """
    findings: list[PromptFinding] = []
    remaining = source
    while len(findings) < MAX_SYNTAX_FINDINGS:
        try:
            return _environment.parse(remaining).body, findings
        except TemplateSyntaxError as error:
            fault = _explain(remaining, error)
            finding = make_finding(source, fault.start, fault.message, fault.placeholder)
            findings.append(replace(finding, written=tag_at(remaining, fault.start)))
            if fault.end is None:
                break
            blank = re.sub(r"[^\n]", " ", remaining[fault.start : fault.end])
            remaining = remaining[: fault.start] + blank + remaining[fault.end :]
        except RecursionError:
            findings.append(make_finding(source, 0, "the template is nested too deeply"))
            break
    return (), findings


def make_finding(
    source: str, offset: int, message: str, placeholder: str | None = None
) -> PromptFinding:
    line, column = locate(source, offset)
    return PromptFinding(message=message, line=line, column=column, placeholder=placeholder)


def locate(source: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a character offset."""
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def tag_at(source: str, offset: int) -> str | None:
    """The tag around a character, as it was written, shortened; None outside of any tag."""
    start = _tag_around(source, offset)
    found = _OPENING.match(source, start)
    if found is None or start > offset:
        return None
    close = source.find(_CLOSINGS[found[0]], max(offset, found.end()))
    # One that is never closed is shown up to the next one.
    reopened = _OPENING.search(source, found.end())
    end = len(source) if close < 0 else close + 2
    if reopened and reopened.start() < end:
        end = reopened.start()
    text = " ".join(source[start:end].split())
    return text if len(text) <= MAX_WRITTEN_LENGTH else f"{text[:MAX_WRITTEN_LENGTH]}…"


def _with_offsets(
    source: str, tokens: Iterator[tuple[int, str, str]]
) -> Iterator[tuple[int, str, str]]:
    position = 0
    try:
        for _, kind, text in tokens:
            # Whitespace control ({{- x -}}) drops characters between two tokens.
            start = source.index(text, position)
            position = start + len(text)
            yield start, kind, text
    except TemplateSyntaxError as error:
        error.lineno = position
        raise


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """A syntax error in words; `end` is where the faulty tag ends, None when that is unknown."""

    message: str
    start: int
    end: int | None = None
    placeholder: str | None = None


def _explain(source: str, error: TemplateSyntaxError) -> _Fault:
    message = _JINJA_POSITION.sub("", error.message or "").rstrip(".")
    start = _tag_around(source, error.lineno)
    # At the end of the text the reader has left every tag, whichever came last.
    is_inside = not message.startswith("Unexpected end of template")
    if is_inside and source.startswith("{{", start):
        return _explain_placeholder(source, start)
    if source.startswith("{#", start):
        return _Fault(message="the comment {# is never closed; add #}", start=start)
    return _explain_block(source, start, message)


def _tag_around(source: str, offset: int) -> int:
    """Where the tag begins in which the reader stood at `offset`."""
    start = 0
    for match in _OPENING.finditer(source):
        if match.start() < start:
            continue
        close = source.find(_CLOSINGS[match[0]], match.end())
        if close < 0 or offset < close + 2:
            return match.start()
        start = close + 2
    return start


def _explain_placeholder(source: str, start: int) -> _Fault:
    close, reopen = source.find("}}", start), source.find("{{", start + 2)
    is_open = close < 0 or start + 2 < reopen < close
    end = (reopen if reopen > 0 else len(source)) if is_open else close + 2
    content = source[start + 2 : end if is_open else close].strip(" \t\n-+{}")
    match = _NAME.search(content)
    name = match[0] if match else None
    example = f"{{{{ {name or 'city'} }}}}"
    if is_open:
        problem = f"“{{{{” is never closed; write {example}"
    elif not content:
        problem = f"there is no name between the braces; write {example}"
    elif source.startswith("{{{", start):
        problem = f"a placeholder has two braces on each side; write {example}"
    elif name and _WORDS.fullmatch(content):
        slug = "_".join(re.findall(r"\w+", content))
        slug = slug if slug.isidentifier() else name
        problem = f"a placeholder's name is one word; write {{{{ {slug} }}}}"
    else:
        problem = f"this cannot be read; write {example}"
    return _Fault(message=problem, start=start, end=end, placeholder=name)


def _explain_block(source: str, start: int, message: str) -> _Fault:
    unclosed: list[int] = []
    for match in _BLOCK.finditer(source):
        tag = match["tag"]
        if tag == "if":
            unclosed.append(match.start())
        elif tag == "endif" and unclosed:
            unclosed.pop()
        elif tag == "endif":
            return _Fault(message="{% endif %} closes no {% if %}", start=match.start())
    if unclosed and message.startswith("Unexpected end"):
        return _Fault(message="{% if %} is never closed; add {% endif %}", start=unclosed[-1])
    for match in _BLOCK.finditer(source):
        if advice := advise_tag(match["tag"]):
            return _Fault(message=advice, start=match.start())
    found = _BLOCK.match(source, start)
    if found and message.startswith("Encountered unknown tag"):
        problem = f"there is no {{% {found['tag']} %}}"
    elif source.find("%}", start) < 0:
        problem = "“{%” is never closed; add %}"
    else:
        problem = "this cannot be read"
    return _Fault(
        message=f"{problem}; there are {{% if name %}}, {{% elif name %}}, {{% else %}} and"
        " {% endif %}",
        start=start,
    )
