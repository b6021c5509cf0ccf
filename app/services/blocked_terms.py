"""The blocked terms of a workspace: kept as a list, read as an index, refused with their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final
from uuid import UUID

from jinja2 import nodes
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput, LimitExceeded
from app.models import BlockedTerm, Campaign, Parameter, PromptTemplate
from app.services.prompts import CONTROL_CHARACTER, parse_prompt
from app.services.term_index import Term, TermIndex, fold, has_word

MAX_TERMS: Final = 1_000
MAX_LENGTH: Final = 200
# Stands between a term and its reason where both are written in one line.
REASON_MARK: Final = "|"
# Of a folded term: one character may become several.
_MAX_KEY_LENGTH: Final = 1_000
# Uses that a refusal lists, and those that its sentence names.
MAX_USES: Final = 50
_MAX_NAMED: Final = 5
_WAY_OUT: Final = "Take it out, or change the blocked terms of this workspace."


@dataclass(frozen=True, kw_only=True)
class CampaignUse:
    """A campaign whose newest prompt or typed values hold blocked terms."""

    campaign: Campaign
    uses: Sequence[BlockedUse]


@dataclass(frozen=True, kw_only=True)
class BlockedUse:
    """A blocked term where it must not stand: in `field`, of a value or variant if `where` says."""

    field: str
    term: str
    reason: str
    where: str
    code: str = "blocked_term"

    @property
    def message(self) -> str:
        return f"{self.where}: {Term(text=self.term, reason=self.reason)} is a blocked term"


class BlockedTermError(InvalidInput):
    """What was to be rendered holds blocked terms; `findings` says which, and where."""

    status = 422
    code = "blocked_term"

    def __init__(self, findings: Sequence[BlockedUse]) -> None:
        named = ". ".join(item.message for item in findings[:_MAX_NAMED])
        left = len(findings) - _MAX_NAMED
        many = f"{left}, or more" if len(findings) >= MAX_USES else f"{left}"
        more = f". And {many} like these" if left > 0 else ""
        super().__init__(f"{named}{more}. {_WAY_OUT}", field=findings[0].field)
        self.findings = list(findings)


def list_blocked_terms(session: Session, actor: Actor) -> list[BlockedTerm]:
    """In the order in which they were written."""
    require(actor, Action.VIEW)
    return list(
        session.scalars(
            select(BlockedTerm)
            .where(BlockedTerm.workspace_id == actor.workspace_id)
            .order_by(BlockedTerm.position)
        )
    )


def replace_blocked_terms(
    session: Session, actor: Actor, terms: Sequence[Term]
) -> list[BlockedTerm]:
    """Make these the blocked terms; those that stay keep since when they are blocked.

    InvalidInput names the line of a term that cannot be used, counted from 1.
    """
    require(actor, Action.EDIT)
    wanted = _checked(terms)
    # Two who write the list at once would both add the same term.
    lock = func.hashtextextended(f"blocked_terms:{actor.workspace_id}", 0)
    session.execute(select(func.pg_advisory_xact_lock(lock)))
    known = {row.key: row for row in list_blocked_terms(session, actor)}
    for position, (key, term) in enumerate(wanted.items()):
        row = known.pop(key, None) or BlockedTerm(
            workspace_id=actor.workspace_id, key=key, created_by=actor.user_id
        )
        row.term, row.reason, row.position = term.text, term.reason, position
        session.add(row)
    for left_over in known.values():
        session.delete(left_over)
    session.flush()
    return list_blocked_terms(session, actor)


def list_campaign_uses(session: Session, actor: Actor) -> list[CampaignUse]:
    """The campaigns, the newest first, from which nothing can be rendered before they are edited.

    Archived ones are left out; of each the first MAX_USES are found.
    """
    require(actor, Action.VIEW)
    terms = load_index(session, actor.workspace_id)
    if not terms:
        return []
    rows = session.execute(
        select(Campaign, PromptTemplate)
        .join(PromptTemplate, PromptTemplate.campaign_id == Campaign.id)
        .where(
            Campaign.workspace_id == actor.workspace_id,
            Campaign.archived_at.is_(None),
            Campaign.is_hidden.is_(False),
        )
        .ext(distinct_on(Campaign.id))
        .order_by(Campaign.id.desc(), PromptTemplate.version.desc())
    )
    values: dict[UUID, dict[str, list[str]]] = {}
    for item in session.scalars(
        select(Parameter).where(Parameter.workspace_id == actor.workspace_id)
    ):
        values.setdefault(item.campaign_id, {})[item.name] = item.values
    found = []
    for campaign, template in rows:
        prompts = in_prompts(terms, template.text, template.negative_text)
        uses = chain(prompts, in_values(terms, values.get(campaign.id, {})))
        if listed := list(islice(uses, MAX_USES)):
            found.append(CampaignUse(campaign=campaign, uses=listed))
    return found


def load_index(session: Session, workspace_id: UUID) -> TermIndex:
    """What is blocked in a workspace now."""
    rows = session.execute(
        select(BlockedTerm.term, BlockedTerm.reason).where(BlockedTerm.workspace_id == workspace_id)
    )
    return TermIndex(Term(text=row.term, reason=row.reason) for row in rows)


def refuse(uses: Iterable[BlockedUse]) -> None:
    """Raise BlockedTermError if there is any; at most MAX_USES are looked for."""
    if found := list(islice(uses, MAX_USES)):
        raise BlockedTermError(found)


def in_prompts(terms: TermIndex, text: str, negative_text: str = "") -> Iterator[BlockedUse]:
    """In the words of prompt templates, without what their placeholders will say."""
    if not terms:
        return
    for field, where, written in (
        ("prompt", "The prompt", text),
        ("negative_prompt", "The negative prompt", negative_text),
    ):
        found = [term for words in _literals(written) for term in terms.find(words)]
        for term in dict.fromkeys(found):
            yield _use(term, field=field, where=where)


def in_values(terms: TermIndex, values: Mapping[str, Sequence[str]]) -> Iterator[BlockedUse]:
    """In values by parameter; each is named by its number from 1."""
    if not terms:
        return
    for name, given in values.items():
        for number, value in enumerate(given, 1):
            for term in terms.find(value):
                yield _use(term, field=name, where=f"{name}, value {number:,}")


def in_text(terms: TermIndex, text: str, *, field: str, where: str) -> Iterator[BlockedUse]:
    """In a text as it stands, such as a prompt whose placeholders are filled."""
    for term in terms.find(text):
        yield _use(term, field=field, where=where)


def _use(term: Term, *, field: str, where: str) -> BlockedUse:
    return BlockedUse(field=field, term=term.text, reason=term.reason, where=where)


def _literals(text: str) -> Iterator[str]:
    """What a template prints by itself: its text, and defaults of placeholders."""
    if not text.strip():
        return
    for node in parse_prompt(text).body:
        outputs = [node] if isinstance(node, nodes.Output) else node.find_all(nodes.Output)
        for output in outputs:
            yield from (part.data for part in output.find_all(nodes.TemplateData))
            yield from (str(part.value) for part in output.find_all(nodes.Const))


def _checked(terms: Sequence[Term]) -> dict[str, Term]:
    """The terms by their key; InvalidInput says what is wrong with one, and in which line."""
    if len(terms) > MAX_TERMS:
        raise LimitExceeded(
            f"These are {len(terms):,} terms; a workspace may block {MAX_TERMS:,}.", field="terms"
        )
    wanted: dict[str, Term] = {}
    lines: dict[str, int] = {}
    for line, given in enumerate(terms, 1):
        term = Term(text=" ".join(given.text.split()), reason=" ".join(given.reason.split()))
        key = fold(term.text)
        if problem := _problem(term, key):
            raise InvalidInput(f"Term {line:,}: {problem}.", field="terms")
        if key in lines:
            raise InvalidInput(
                f"Term {line:,}, “{term.text}”, is the same as term {lines[key]:,}, "
                f"“{wanted[key].text}”: case and accents make no difference. Take one out.",
                field="terms",
            )
        wanted[key], lines[key] = term, line
    return wanted


def _problem(term: Term, key: str) -> str:
    for name, text in (("term", term.text), ("reason", term.reason)):
        if len(text) > MAX_LENGTH:
            return f"the {name} has {len(text):,} characters; {MAX_LENGTH} are allowed"
        if CONTROL_CHARACTER.search(text):
            return f"there is an invisible control character in the {name}; delete it"
    if REASON_MARK in term.text:
        return f"a term holds no {REASON_MARK}; it stands before the reason"
    if not term.text:
        return "there is no term; write one, or leave this line out"
    if not has_word(term.text) or len(key) > _MAX_KEY_LENGTH:
        return f"“{term.text}” has no letter or digit to look for; write a word"
    return ""
