"""Database engines, sessions bound to a workspace or to the system, and after-commit work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.access import Actor
from app.config import Config

WORKSPACE_SETTING = "adloom.workspace_id"
CONFIG = "config"


class Database:
    """The two ways into Postgres: `adloom_app` for people, `adloom_system` for background work."""

    def __init__(self, config: Config, *, pool_size: int = 5) -> None:
        self._config = config
        self.app_engine = _create_engine(config.database_app_url, pool_size)
        self.system_engine = _create_engine(config.database_system_url, pool_size)

    @contextmanager
    def workspace_scope(self, actor: Actor) -> Iterator[Session]:
        """One transaction in which row-level security shows the actor's workspace alone."""
        with self._transaction(self.app_engine) as session:
            bind_workspace(session, actor)
            yield session

    @contextmanager
    def system_scope(self) -> Iterator[Session]:
        """One transaction across workspaces: claims, expansion, the reaper, login."""
        with self._transaction(self.system_engine) as session:
            yield session

    def dispose(self) -> None:
        self.app_engine.dispose()
        self.system_engine.dispose()

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Session]:
        with Session(engine, expire_on_commit=False, info={CONFIG: self._config}) as session:
            try:
                yield session
                session.commit()
            except BaseException:
                session.rollback()
                raise


def bind_workspace(session: Session, actor: Actor) -> None:
    """Set the workspace for row-level security until the transaction ends."""
    session.execute(
        text("SELECT set_config(:name, :value, true)"),
        {"name": WORKSPACE_SETTING, "value": str(actor.workspace_id)},
    )


def config_of(session: Session) -> Config:
    """The settings of the Database that the session came from."""
    config: Config = session.info[CONFIG]
    return config


def after_commit(session: Session, callback: Callable[[], None]) -> None:
    """Run `callback` once this transaction has committed; never when it rolls back."""
    pending: list[Callable[[], None]] = session.info.setdefault("after_commit", [])
    pending.append(callback)


@event.listens_for(Session, "after_commit")
def _run_pending(session: Session) -> None:
    for callback in session.info.pop("after_commit", []):
        callback()


@event.listens_for(Session, "after_rollback")
def _drop_pending(session: Session) -> None:
    session.info.pop("after_commit", None)


def _create_engine(url: str, pool_size: int) -> Engine:
    options: dict[str, Any] = {"pool_size": pool_size, "max_overflow": pool_size}
    return create_engine(
        url,
        pool_pre_ping=True,
        pool_timeout=10,
        connect_args={"connect_timeout": 5, "application_name": "adloom"},
        **options,
    )
