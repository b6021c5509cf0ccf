"""Landmarks of cities, as a prompt names them: a curated table by GeoNames id, with sources."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from app.paths import LANDMARKS
from app.services.gazetteer import Place
from app.services.places import resolve_place

# Values that a message names; the rest is counted.
MAX_NAMED: Final = 5


@dataclass(frozen=True, kw_only=True)
class Landmark:
    """A phrase for a prompt, and the article that tells of what it names."""

    geonameid: int
    city: str
    country_code: str
    phrase: str
    source: str


def landmarks_of(place: Place) -> tuple[Landmark, ...]:
    """What is known of a place, the best known first; empty for most places."""
    return load().get(place.geonameid, ())


def landmark_phrase(text: str) -> str:
    """The first landmark of the place that a text names; empty where none is known."""
    place = resolve_place(text.strip()).place
    found = landmarks_of(place) if place is not None else ()
    return found[0].phrase if found else ""


def find_no_landmark(*values: str) -> str:
    """What is wrong with places of which no landmark is known; empty if nothing."""
    without = [value for value in dict.fromkeys(values) if value and not landmark_phrase(value)]
    if not without:
        return ""
    named = ", ".join(f"“{value}”" for value in without[:MAX_NAMED])
    more = f" and {len(without) - MAX_NAMED:,} more" if len(without) > MAX_NAMED else ""
    return (
        f"no landmark is known of {named}{more}; say what stands in its place, as in"
        ' {{ city|landmark|default("the old town") }}'
    )


@lru_cache(maxsize=1)
def load() -> MappingProxyType[int, tuple[Landmark, ...]]:
    """The table by GeoNames id."""
    found: dict[int, list[Landmark]] = defaultdict(list)
    with LANDMARKS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            geonameid = int(row.pop("geonameid"))
            found[geonameid].append(Landmark(geonameid=geonameid, **row))
    return MappingProxyType({key: tuple(rows) for key, rows in found.items()})
