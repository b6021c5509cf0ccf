"""The environment of child processes: complete, and what is set outside wins."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from app.config import Config
from app.stack import folder as folder_module
from app.stack.environment import Address, compose
from app.stack.folder import StateFolder
from app.stack.servers import Servers

ADDRESS = Address(host="127.0.0.1", port=8123)


def environment_of(folder: StateFolder, environ: dict[str, str]) -> dict[str, str]:
    servers = Servers(folder, environ, say=print)
    return compose(environ, folder=folder, servers=servers, address=ADDRESS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setattr(folder_module, "RUN_ROOT", tmp_path)
    return StateFolder.create(tmp_path / "state")


def test_an_empty_environment_becomes_a_complete_configuration(folder: StateFolder) -> None:
    config = Config.from_environment(environment_of(folder, {"PATH": "/bin"}))
    assert make_url(config.database_app_url).query["host"] == str(folder.run / "pg")
    assert config.storage_url == folder.artifacts.as_uri()
    assert config.secret_key == folder.secrets().secret_key
    assert config.base_url == "http://127.0.0.1:8123"


def test_addresses_set_outside_replace_the_embedded_servers(folder: StateFolder) -> None:
    outside = {
        "DATABASE_URL": "postgresql://somebody@elsewhere/adloom",
        "REDIS_URL": "redis://elsewhere:6379/0",
        "STORAGE_URL": "s3://bucket/prefix",
    }
    assert Servers(folder, outside, say=print).by_variable == {}
    composed = environment_of(folder, outside)
    assert {name: composed[name] for name in outside} == outside


def test_an_empty_variable_counts_as_not_set(folder: StateFolder) -> None:
    composed = environment_of(folder, {"STORAGE_URL": "", "DATABASE_URL": ""})
    assert composed["STORAGE_URL"] == folder.artifacts.as_uri()
    assert composed["DATABASE_URL"].startswith("postgresql://")


def test_the_address_shown_can_be_opened_when_all_interfaces_are_bound() -> None:
    assert Address(host="0.0.0.0", port=80).url == "http://127.0.0.1:80"
    assert Address(host="::1", port=80).url == "http://[::1]:80"
