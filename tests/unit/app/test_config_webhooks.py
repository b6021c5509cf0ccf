"""The setting that opens private networks to webhooks."""

from __future__ import annotations

import ipaddress

import pytest

from app.config import Config
from app.errors import ConfigurationError
from app.paths import ROOT

ENVIRONMENT = {
    "DATABASE_URL": "postgresql://adloom@localhost/adloom",
    "REDIS_URL": "redis://localhost",
    "STORAGE_URL": "file:///tmp",
    "ADLOOM_SECRET_KEY": "x" * 32,
}


def networks(value: str) -> tuple[object, ...]:
    environment = ENVIRONMENT | {"WEBHOOK_ALLOWED_NETWORKS": value}
    return Config.from_environment(environment).webhook_allowed_networks


def test_no_private_network_is_open_unless_somebody_opens_it() -> None:
    assert Config.from_environment(ENVIRONMENT).webhook_allowed_networks == ()
    assert networks(" ") == ()
    assert "WEBHOOK_ALLOWED_NETWORKS" not in (ROOT / "docker-compose.yml").read_text()


def test_networks_are_read_as_a_list() -> None:
    assert networks("127.0.0.0/8, ::1/128") == (
        ipaddress.ip_network("127.0.0.0/8"),
        ipaddress.ip_network("::1/128"),
    )


@pytest.mark.parametrize("value", ["localhost", "10.0.0.1/8", "10.0.0.0/33"])
def test_what_is_no_network_is_named(value: str) -> None:
    with pytest.raises(ConfigurationError, match="WEBHOOK_ALLOWED_NETWORKS") as caught:
        networks(value)
    assert caught.value.field == "WEBHOOK_ALLOWED_NETWORKS"
