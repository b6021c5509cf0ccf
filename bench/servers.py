"""Postgres and Valkey of their own for benchmarks of the control plane, thrown away at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.config import Config
from app.services import schema
from app.stack.environment import Address, compose
from app.stack.folder import StateFolder
from app.stack.servers import Servers


@contextmanager
def fresh_environment() -> Iterator[dict[str, str]]:
    """What a process needs to use servers with an empty, current schema and usual durability."""
    root = Path(tempfile.mkdtemp(prefix="adl-", dir="/tmp"))
    folder = StateFolder.create(root)
    servers = Servers(folder, {}, say=lambda _: None)
    try:
        servers.ensure_running()
        address = Address(host="127.0.0.1", port=8000)
        environment = compose({}, folder=folder, servers=servers, address=address)
        schema.upgrade(Config.from_environment(environment))
        yield environment
    finally:
        servers.stop(immediately=True)
        shutil.rmtree(folder.run, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def fresh_servers() -> Iterator[Config]:
    """The settings of `fresh_environment`."""
    with fresh_environment() as environment:
        yield Config.from_environment(environment)
