"""Whether the web server's port is free, asked before anything is started."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

import psutil

from app.errors import ConfigurationError
from app.stack.environment import Address
from app.stack.program import command


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """Why nothing can listen on an address, and how to choose another."""

    reason: str
    remedy: str


def require_free(address: Address) -> None:
    """ConfigurationError naming the port, who holds it, and how to choose another."""
    if obstacle := find_obstacle(address):
        raise ConfigurationError(f"{obstacle.reason}. {obstacle.remedy}", field="ADLOOM_PORT")


def find_obstacle(address: Address) -> Obstacle | None:
    """What keeps the web server from listening there; None when the port is free."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            other = address.port + 1 if address.port < 65535 else 8000
            remedy = f"Choose another: `{command(f'up --port {other}')}` or ADLOOM_PORT={other}."
            return Obstacle(reason=_reason(address, error), remedy=remedy)
    return None


def _reason(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = _holder(address.port)
        return f"Port {address.port} is already in use{f' by {holder}' if holder else ''}"
    if error.errno == errno.EACCES:
        return f"Port {address.port} may not be used without administrator rights"
    return f"Cannot listen on {address.host}, port {address.port} ({error})"


def _holder(port: int) -> str | None:
    """The listening process, where the system lets us see it."""
    try:
        for connection in psutil.net_connections("inet"):
            is_listening = connection.status == psutil.CONN_LISTEN
            # (address, port); empty for a socket that is not bound
            if is_listening and connection.laddr[1:] == (port,) and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return None
    return None
