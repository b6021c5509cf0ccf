"""Single generations: order one render, wait for it, cancel it."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.access import Action, Actor
from app.api.cursors import read_id_cursor
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.base import PageQuery, paged
from app.api.schemas.generations import (
    FINAL,
    Generation,
    GenerationCreate,
    GenerationPage,
    WaitQuery,
)
from app.services import generations
from app.services.generations import GenerationOrder
from app.services.render_settings import complete_settings

routes = Routes()
TAG: Final = "Generations"
ONE: Final = "/generations/<uuid:generation_id>"


def _refresh(session: Session, actor: Actor, generation_id: UUID) -> tuple[BaseModel, bool]:
    shown = Generation.of(generations.get_generation(session, actor, generation_id))
    return shown, shown.status in FINAL


@routes.add(
    Route(
        method="POST",
        path="/generations",
        kind=RouteKind.CREATE,
        action=Action.LAUNCH,
        tag=TAG,
        summary="Order one render",
        answer=Generation,
        body=GenerationCreate,
        query=WaitQuery,
        status=201,
        refresh=_refresh,
    )
)
def create_generation(call: Call[GenerationCreate, WaitQuery]) -> Generation:
    body = call.body
    batch = generations.create_generation(
        call.session,
        call.actor,
        GenerationOrder(
            prompt=body.prompt,
            negative_prompt=body.negative_prompt,
            values=body.values,
            kinds=body.kinds,
            settings=complete_settings(body.settings.model_dump(exclude_none=True)),
            seed=body.seed,
            force_render=body.force_render,
            passthrough=body.passthrough,
        ),
    )
    return Generation.of(generations.view_generation(call.session, call.actor, batch))


@routes.add(
    Route(
        method="GET",
        path="/generations",
        kind=RouteKind.COLLECTION,
        action=Action.VIEW,
        tag=TAG,
        summary="List generations, the newest first",
        answer=GenerationPage,
        query=PageQuery,
    )
)
def list_generations(call: Call[Empty, PageQuery]) -> GenerationPage:
    rows = generations.list_generations(
        call.session,
        call.actor,
        limit=call.query.limit + 1,
        before=read_id_cursor(call.actor, call.query.cursor),
    )
    views = [generations.view_generation(call.session, call.actor, row) for row in rows]
    data, cursor = paged(call, views, Generation.of, lambda view: view.batch.id)
    return GenerationPage(data=data, next_cursor=cursor)


@routes.add(
    Route(
        method="GET",
        path=ONE,
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag=TAG,
        summary="Get a generation with its progress and, once it is there, its artifact",
        answer=Generation,
        query=WaitQuery,
        refresh=_refresh,
    )
)
def get_generation(call: Call[Empty, WaitQuery], generation_id: UUID) -> Generation:
    return Generation.of(generations.get_generation(call.session, call.actor, generation_id))


@routes.add(
    Route(
        method="POST",
        path=f"{ONE}/cancel",
        kind=RouteKind.OBJECT,
        action=Action.LAUNCH,
        tag=TAG,
        summary="Cancel a generation that has not ended",
        answer=Generation,
    )
)
def cancel_generation(call: Call[Empty, Empty], generation_id: UUID) -> Generation:
    return Generation.of(generations.cancel_generation(call.session, call.actor, generation_id))
