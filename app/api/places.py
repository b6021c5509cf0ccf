"""Places: what a name means, and what it may be the beginning of."""

from __future__ import annotations

from typing import Final

from app.access import Action
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.places import Place, PlaceQuery, Places
from app.services.places import resolve_place, suggest_places

routes = Routes()
TAG: Final = "Places"


@routes.add(
    Route(
        method="GET",
        path="/places",
        kind=RouteKind.COLLECTION,
        action=Action.VIEW,
        tag=TAG,
        summary="Find the place that a text names, or those that it may mean",
        answer=Places,
        query=PlaceQuery,
    )
)
def find_places(call: Call[Empty, PlaceQuery]) -> Places:
    resolution = resolve_place(call.query.q)
    found = dict.fromkeys((*resolution.candidates, *suggest_places(call.query.q)))
    return Places(
        place=None if resolution.place is None else Place.of(resolution.place),
        data=[Place.of(place) for place in found if place != resolution.place],
    )
