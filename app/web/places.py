"""What the campaign form says of the places that are typed into it, and suggestions for more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from flask import Blueprint, request
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Actor
from app.services.landmarks import landmarks_of
from app.services.places import (
    Resolution,
    describe_place,
    label_place,
    resolve_place,
    suggest_places,
)
from app.web.scope import page, signed_in

blueprint = Blueprint("places", __name__, url_prefix="/places")

# Of each sort; the rest is counted.
MAX_SHOWN: Final = 6


@dataclass(frozen=True, kw_only=True)
class KnownPlace:
    """A value that names a place, and what to write for others of its name."""

    value: str
    name: str
    timezone: str
    others: tuple[str, ...] = ()
    landmarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlaceQuestion:
    """A value that may mean several places, by the words that mean one of them."""

    value: str
    choices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlaceReport:
    """What is known of the values of a geography, in their order."""

    known: tuple[KnownPlace, ...] = ()
    questions: tuple[PlaceQuestion, ...] = ()
    unknown: tuple[str, ...] = ()
    known_count: int = 0
    question_count: int = 0
    unknown_count: int = 0
    landmark_count: int = 0


NO_PLACES: Final = PlaceReport()


@blueprint.get("/suggestions")
@signed_in
def suggest(session: Session, actor: Actor) -> ResponseReturnValue:
    """Places whose name begins with what is typed, as options of a list."""
    found = [
        (label_place(place), describe_place(place), place.timezone)
        for place in suggest_places(request.args.get("q", ""), limit=MAX_SHOWN)
    ]
    return page("partials/place_suggestions.html", places=found)


def report_places(values: Iterable[str]) -> PlaceReport:
    """What each value means; only the first of each sort are described, the rest is counted."""
    resolutions = [resolve_place(value) for value in dict.fromkeys(values)]
    known = [item for item in resolutions if item.place is not None]
    questions = [item for item in resolutions if item.is_ambiguous]
    unknown = [item.text for item in resolutions if item.is_unknown]
    return PlaceReport(
        known=tuple(_known(item) for item in known[:MAX_SHOWN]),
        questions=tuple(
            PlaceQuestion(value=item.text, choices=_labels(item)) for item in questions[:MAX_SHOWN]
        ),
        unknown=tuple(unknown[:MAX_SHOWN]),
        known_count=len(known),
        question_count=len(questions),
        unknown_count=len(unknown),
        landmark_count=sum(1 for item in known if item.place and landmarks_of(item.place)),
    )


def _known(resolution: Resolution) -> KnownPlace:
    assert resolution.place is not None
    return KnownPlace(
        value=resolution.text,
        name=resolution.place.full_name,
        timezone=resolution.place.timezone,
        others=_labels(resolution),
        landmarks=tuple(item.phrase for item in landmarks_of(resolution.place)),
    )


def _labels(resolution: Resolution) -> tuple[str, ...]:
    return tuple(dict.fromkeys(label_place(place) for place in resolution.candidates))
