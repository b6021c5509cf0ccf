"""The web server's port is looked at before anything starts."""

from __future__ import annotations

import socket

import pytest

from app.errors import ConfigurationError
from app.stack.environment import Address
from app.stack.ports import require_free


def test_a_port_in_use_is_named_with_its_holder_and_another_one_to_choose() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            require_free(Address(host="127.0.0.1", port=port))
    assert f"Port {port} is already in use by " in caught.value.message
    assert f"adloom up --port {port + 1}" in caught.value.message


def test_a_free_port_passes() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    require_free(Address(host="127.0.0.1", port=port))


def test_an_address_that_is_not_ours_is_a_sentence_too() -> None:
    with pytest.raises(ConfigurationError, match=r"Cannot listen on 192\.0\.2\.1"):
        require_free(Address(host="192.0.2.1", port=8000))
