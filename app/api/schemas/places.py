"""Places of the world, as the API speaks of them."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from app.api.schemas.base import Input, Output, Text
from app.services.gazetteer import Place as PlaceValue
from app.services.gazetteer import PlaceKind
from app.services.landmarks import landmarks_of
from app.services.places import MAX_TEXT_LENGTH, label_place


class PlaceQuery(Input):
    q: Text = Field(
        default="",
        max_length=MAX_TEXT_LENGTH,
        description="A name or its beginning; region or country may follow after a comma.",
    )


class Landmark(Output):
    """What a place is known by, in words for a prompt; `source` is an article about it."""

    phrase: str
    source: str


class Place(Output):
    """A place; `label` are the shortest words that name it beyond doubt, fit to be a value.

    `timezone` is an IANA name, empty for a state or a country with several.
    """

    geonameid: int
    kind: PlaceKind
    label: str
    name: str
    region: str
    country: str
    country_code: str
    timezone: str
    landmarks: list[Landmark]

    @classmethod
    def of(cls, place: PlaceValue) -> Self:
        return cls(
            geonameid=place.geonameid,
            kind=place.kind,
            label=label_place(place),
            name=place.name,
            region=place.region,
            country=place.country,
            country_code=place.country_code,
            timezone=place.timezone,
            landmarks=[
                Landmark(phrase=item.phrase, source=item.source) for item in landmarks_of(place)
            ],
        )


class Places(Output):
    """`place` is what the text means, or null: then `data` are those to choose from.

    `data` holds places of that name, the largest first, then those whose name begins so.
    """

    place: Place | None
    data: list[Place]
