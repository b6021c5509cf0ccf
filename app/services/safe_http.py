"""HTTP requests to addresses that customers choose: checked where they connect, and limited.

A name is resolved once, every address that it has is checked, and a checked address is dialled
itself: what the name means a moment later (DNS rebinding) does not matter. TLS still verifies the
name. Redirects are not followed, and no proxy is taken from the environment.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import certifi
import httpcore

from app.config import IPNetwork
from app.services.safe_http_addresses import (
    AddressRefused,
    IPAddress,
    Target,
    check_address,
    parse_address,
)

TIMEOUT_S: Final = 15.0
CONNECT_TIMEOUT_S: Final = 5.0
KEPT_BYTES: Final = 1_024

Resolver = Callable[[str, int], list[IPAddress]]
Connector = Callable[[str, int, float], httpcore.NetworkStream]


class RequestError(Exception):
    """No answer came; the message says why, in words for the receiver's engineer."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Status, headers (names in lower case) and the first kilobyte of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def resolve(host: str, port: int) -> list[IPAddress]:
    """All addresses of a name, in the order of preference; OSError when it has none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = (parse_address(str(entry[4][0])) for entry in found)
    return list(dict.fromkeys(address for address in addresses if address is not None))


def dial(address: str, port: int, timeout_s: float) -> httpcore.NetworkStream:
    """A TCP connection to an address."""
    return httpcore.SyncBackend().connect_tcp(address, port, timeout_s)


@dataclass(frozen=True, kw_only=True)
class SafeClient:
    """Posts to checked addresses; the resolver, the connector and TLS can be put in by tests."""

    allowed_networks: tuple[IPNetwork, ...] = ()
    timeout_s: float = TIMEOUT_S
    resolver: Resolver = resolve
    connector: Connector = dial
    ssl_context: ssl.SSLContext | None = None

    def post(self, target: Target, *, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send once, on a connection of its own; AddressRefused or RequestError without answer.

        The time limit covers everything from the connection to the last byte that is kept. Only
        the look-up of the name comes on top: the system's resolver has its own limit.
        """
        backend = _GuardedBackend(self, deadline=time.monotonic() + self.timeout_s)
        context = self.ssl_context or default_ssl_context()
        try:
            with (
                httpcore.ConnectionPool(ssl_context=context, network_backend=backend) as pool,
                pool.stream(
                    "POST",
                    target.url,
                    headers=[*headers.items(), ("connection", "close")],
                    content=body,
                    extensions={"timeout": dict.fromkeys(("connect", "read", "write"), None)},
                ) as response,
            ):
                return Answer(
                    status=response.status,
                    headers={
                        name.decode("latin-1").lower(): value.decode("latin-1")
                        for name, value in response.headers
                    },
                    body=_first_bytes(response),
                )
        except httpcore.TimeoutException:
            raise RequestError(f"No answer within {self.timeout_s:g} s.") from None
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise RequestError(_reason(error)) from error


@lru_cache(maxsize=1)
def default_ssl_context() -> ssl.SSLContext:
    """Verifies certificate and host name, by the system's authorities and Mozilla's."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


class _GuardedBackend(httpcore.NetworkBackend):
    """Resolves, checks and dials for one request."""

    def __init__(self, client: SafeClient, *, deadline: float) -> None:
        self._client = client
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        del timeout, local_address, socket_options  # the deadline of the request rules
        failure: httpcore.NetworkError | httpcore.TimeoutException | None = None
        for address in self._checked_addresses(host, port):
            limit_s = min(CONNECT_TIMEOUT_S, _left_s(self._deadline))
            try:
                stream = self._client.connector(str(address), port, limit_s)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _TimedStream(stream, deadline=self._deadline)
        raise failure or httpcore.ConnectError("The host has no address.")

    def _checked_addresses(self, host: str, port: int) -> list[IPAddress]:
        literal = parse_address(host)
        try:
            found = [literal] if literal is not None else self._client.resolver(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"The name {host} cannot be resolved.") from error
        # All before any: a name that also leads inside is refused whichever comes first.
        for address in found:
            check_address(address, allowed_networks=self._client.allowed_networks)
        return found


class _TimedStream(httpcore.NetworkStream):
    """A connection on which a peer that sends drop by drop gains no time."""

    def __init__(self, stream: httpcore.NetworkStream, *, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left_s(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left_s(self._deadline))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, _left_s(self._deadline))
        return _TimedStream(secured, deadline=self._deadline)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise httpcore.ReadTimeout
    return left_s


def _first_bytes(response: httpcore.Response) -> bytes:
    """What is kept of the body; a body that breaks off does not undo the status."""
    kept = b""
    with suppress(httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError):
        for part in response.iter_stream():
            kept += part
            if len(kept) >= KEPT_BYTES:
                break
    return kept[:KEPT_BYTES]


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"The TLS certificate was not accepted: {text}"
    return f"The connection failed: {text}"


__all__ = ["AddressRefused", "Answer", "RequestError", "SafeClient", "resolve"]
