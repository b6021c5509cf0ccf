"""Variants, artifacts and reviews."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from app.access import Action
from app.api.cursors import read_cursor
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.base import paged
from app.api.schemas.variants import (
    Artifact,
    ReviewInput,
    ReviewsCreate,
    ReviewsSet,
    Variant,
    VariantPage,
    VariantQuery,
)
from app.models import Artifact as ArtifactRow
from app.services import batches, reviews
from app.services.scoping import get_in_workspace

routes = Routes()
TAG: Final = "Variants"
REVIEWS: Final = "Reviews"


@routes.add(
    Route(
        method="GET",
        path="/batches/<uuid:batch_id>/variants",
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag=TAG,
        summary="List the variants of a batch, in order",
        answer=VariantPage,
        query=VariantQuery,
    )
)
def list_variants(call: Call[Empty, VariantQuery], batch_id: UUID) -> VariantPage:
    batches.get_batch(call.session, call.actor, batch_id)
    after = read_cursor(call.actor, call.query.cursor)
    views = batches.list_variants(
        call.session,
        call.actor,
        batch_id,
        state=call.query.state,
        review=call.query.review,
        limit=call.query.limit + 1,
        after_ordinal=-1 if after is None else after,
    )
    data, cursor = paged(call, views, Variant.of, lambda view: view.variant.ordinal)
    return VariantPage(data=data, next_cursor=cursor)


@routes.add(
    Route(
        method="GET",
        path="/variants/<uuid:variant_id>",
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag=TAG,
        summary="Get a variant with its artifact and its review",
        answer=Variant,
    )
)
def get_variant(call: Call[Empty, Empty], variant_id: UUID) -> Variant:
    return Variant.of(batches.get_variant(call.session, call.actor, variant_id))


@routes.add(
    Route(
        method="PUT",
        path="/variants/<uuid:variant_id>/review",
        kind=RouteKind.OBJECT,
        action=Action.REVIEW,
        tag=REVIEWS,
        summary="Approve or reject a variant, or take either back",
        answer=Variant,
        body=ReviewInput,
    )
)
def set_review(call: Call[ReviewInput, Empty], variant_id: UUID) -> Variant:
    reviews.set_review(
        call.session, call.actor, [variant_id], call.body.state, reason=call.body.reason
    )
    call.session.flush()
    return Variant.of(batches.get_variant(call.session, call.actor, variant_id))


@routes.add(
    Route(
        method="POST",
        path="/reviews",
        kind=RouteKind.CREATE,
        action=Action.REVIEW,
        tag=REVIEWS,
        summary="Give many variants the same review",
        answer=ReviewsSet,
        body=ReviewsCreate,
    )
)
def create_reviews(call: Call[ReviewsCreate, Empty]) -> ReviewsSet:
    body = call.body
    number = reviews.set_review(
        call.session, call.actor, body.variant_ids, body.state, reason=body.reason
    )
    return ReviewsSet(reviewed=number)


@routes.add(
    Route(
        method="GET",
        path="/artifacts/<uuid:artifact_id>",
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag="Artifacts",
        summary="Get an artifact with links to its files, which work for some minutes",
        answer=Artifact,
    )
)
def get_artifact(call: Call[Empty, Empty], artifact_id: UUID) -> Artifact:
    return Artifact.of(get_in_workspace(call.session, call.actor, ArtifactRow, artifact_id))
