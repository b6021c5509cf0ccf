"""Which place a text means: resolved, asked back, or kept as typed; suggestions while typing."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

from app.services import gazetteer
from app.services.gazetteer import Gazetteer, Place, PlaceKind, fold, is_in, is_told_by_region

# A place is meant without a question when it is that large, and so many times larger than the
# next of its name.
MIN_FAMOUS_POPULATION: Final = 500_000
MIN_RATIO: Final = 10
# The same where all are found by another name than their own, as “NYC”.
MIN_RATIO_OF_OTHER_NAMES: Final = 3
MAX_CANDIDATES: Final = 8
MAX_SUGGESTIONS: Final = 8
MIN_QUERY_LENGTH: Final = 2
# No name of a place is longer.
MAX_TEXT_LENGTH: Final = 120
_NEAR: Final = " near "
# What puts a state or a country before a city of its name.
_KIND: Final = re.compile(r"the (?P<kind>state|country) of (?P<name>.+)|(?P<state>.+) state")


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """What a text means: `place`, or a question among `candidates`, or nothing that is known.

    `candidates` are the largest first; where there is a `place`, they are those passed over.
    """

    text: str
    place: Place | None = None
    candidates: tuple[Place, ...] = ()

    @property
    def is_ambiguous(self) -> bool:
        return self.place is None and bool(self.candidates)

    @property
    def is_unknown(self) -> bool:
        return self.place is None and not self.candidates


@lru_cache(maxsize=20_000)
def resolve_place(text: str) -> Resolution:
    """The place that a text such as “Fremont”, “Fremont, CA” or “Paris, France” names."""
    if len(text) > MAX_TEXT_LENGTH or not fold(text):
        return Resolution(text=text)
    found = _find(gazetteer.load(), text)
    if not found:
        return Resolution(text=text)
    if (meant := _meant(found, text)) is not None:
        others = tuple(place for place in found if place is not meant)
        return Resolution(text=text, place=meant, candidates=others[:MAX_CANDIDATES])
    return Resolution(text=text, candidates=tuple(found[:MAX_CANDIDATES]))


def suggest_places(query: str, *, limit: int = MAX_SUGGESTIONS) -> list[Place]:
    """Places whose name begins with the query, the largest first; after a comma, of that region."""
    name, *qualifiers = (fold(part) for part in query[:MAX_TEXT_LENGTH].split(","))
    if len(name) < MIN_QUERY_LENGTH:
        return []
    places = gazetteer.load()
    begin = bisect_left(places.names, name)
    names = list(takewhile(lambda each: each.startswith(name), places.names[begin:]))
    found: dict[int, Place] = {}
    # Those that bear the name come before those that some call so.
    for index in (places.by_name, places.by_other_name):
        matches = {
            place.geonameid: place
            for each in names
            for place in index.get(each, ())
            if all(is_in(place, part, is_prefix=True) for part in qualifiers if part)
        }
        found |= dict(sorted(matches.items(), key=lambda item: -item[1].population)[:limit])
    return list(found.values())[:limit]


def label_place(place: Place) -> str:
    """The shortest words that mean this place and no other, fit for a prompt."""
    if place.kind is PlaceKind.CITY:
        whole = place.region if is_told_by_region(place) else place.country
        written = [place.name, f"{place.name}, {whole}", place.full_name]
    else:
        written = [place.name, f"the {place.kind} of {place.name}"]
    for text in written:
        if resolve_place(text).place == place:
            return text
    larger = gazetteer.load().nearest_larger(place)
    return f"{place.name}{_NEAR}{larger.name}, {place.country}" if larger else place.full_name


def describe_place(place: Place) -> str:
    """What tells a place from others of its name: where it is, or what it is."""
    if place.kind is PlaceKind.COUNTRY:
        return "country"
    if place.kind is PlaceKind.STATE:
        return f"state, {place.country}"
    return ", ".join(filter(None, (place.region, place.country)))


def stored_place(place: Place) -> dict[str, Any]:
    """What a parameter keeps of a place that one of its values names."""
    return {
        "geonameid": place.geonameid,
        "name": place.full_name,
        "country_code": place.country_code,
        "timezone": place.timezone,
    }


def resolve_values(values: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The places that values name beyond doubt, by value, as a parameter keeps them."""
    resolved = ((value, resolve_place(value).place) for value in dict.fromkeys(values))
    return {value: stored_place(place) for value, place in resolved if place is not None}


def _find(places: Gazetteer, text: str) -> list[Place]:
    """All that a text may mean, the largest first."""
    if (near := text.casefold().find(_NEAR)) > 0:
        found = _named(places, fold(text[:near]))
        # Some places are twice in the data; the first will do.
        return [place for place in found if fold(label_place(place)) == fold(text)][:1]
    name, *qualifiers = (fold(part) for part in text.split(","))
    found = _named(places, name)
    if not found and (match := _KIND.fullmatch(name)):
        kind = match["kind"] or PlaceKind.STATE
        named = places.by_name.get(match["name"] or match["state"], ())
        found = [place for place in named if place.kind == kind]
    return [place for place in found if all(is_in(place, part) for part in qualifiers if part)]


def _named(places: Gazetteer, name: str) -> list[Place]:
    """Places of a name; by another name only those larger than any that bears it.

    Where no city bears the name, “New York” is the state, but most people mean the city.
    """
    found = list(places.by_name.get(name, ()))
    has_city = any(place.kind is PlaceKind.CITY for place in found)
    least = found[0].population if has_city else 0
    found += [place for place in places.by_other_name.get(name, ()) if place.population > least]
    return sorted(found, key=lambda place: -place.population)


def _meant(found: Sequence[Place], text: str) -> Place | None:
    """The one place that nobody needs to be asked about."""
    first, *rest = _without_namesakes(found)
    if not rest:
        return first
    name = fold(text.split(",")[0])
    is_own_name = any(fold(place.name) == name for place in (first, *rest))
    ratio = MIN_RATIO if is_own_name else MIN_RATIO_OF_OTHER_NAMES
    is_famous = first.population >= MIN_FAMOUS_POPULATION or "," in text
    return first if is_famous and first.population >= ratio * rest[0].population else None


def _without_namesakes(found: Sequence[Place]) -> list[Place]:
    """Of a state or country and the city in it of the same name, the one that most people mean.

    That is the city where a quarter of the people or more live in it (New York, Singapore).
    """
    left = list(found)
    for whole in found:
        if whole.kind is PlaceKind.CITY:
            continue
        cities = [place for place in left if _lies_in(place, whole)]
        if not cities:
            continue
        if 4 * cities[0].population >= whole.population:
            left.remove(whole)
        else:
            left = [place for place in left if place not in cities]
    return left


def _lies_in(place: Place, whole: Place) -> bool:
    if place.kind is not PlaceKind.CITY or place.country_code != whole.country_code:
        return False
    return whole.kind is PlaceKind.COUNTRY or place.region_code == whole.region_code
