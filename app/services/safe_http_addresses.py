"""Which addresses of the outside world a workspace may have us call: our own list of what not."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from app.config import IPNetwork
from app.errors import InvalidInput

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL_LENGTH: Final = 2_000
FIRST_FREE_PORT: Final = 1024
PORTS: Final = {"http": 80, "https": 443}

# The IANA registries of special-purpose addresses, and what clouds answer on besides. The standard
# library's `is_global` lets some of them pass (multicast, NAT64, 6to4), so it is not asked.
BLOCKED_NETWORKS: Final[tuple[IPNetwork, ...]] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's host
        "169.254.0.0/16",  # link-local, with the metadata service of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT relays
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        # Of IPv6, 2000::/3 alone is assigned to the internet: these three are all the rest, with
        # loopback, NAT64, discard, SRv6, unique local, link-local, site-local and multicast.
        "::/3",
        "4000::/2",
        "8000::/1",
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: carries any IPv4 address
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)

_LOOPBACK: Final = ipaddress.IPv4Address("127.0.0.1")

# Visible ASCII but the backslash, which some readers of URLs take for a slash.
_PLAIN = re.compile(r"[!-\[\]-~]+")
# What the C library reads as an IPv4 address although it is not written as one: 2130706433,
# 0x7f000001, 0177.1. No public name ends like that (RFC 3696: top-level domains hold letters).
_NUMERIC_HOST = re.compile(r"(?:^|\.)(?:0[xX][0-9a-fA-F]*|[0-9]+)\.?$")


class AddressRefused(InvalidInput):
    """The address is not one that we call on behalf of a workspace."""

    code = "address_refused"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A checked URL: the host without brackets, in ASCII, and the port."""

    url: str
    scheme: str
    host: str
    port: int


def check_url(url: str, *, allowed_networks: Iterable[IPNetwork] = ()) -> Target:
    """What the URL leads to; InvalidInput when it can be no receiver, whatever its host means."""
    if len(url) > MAX_URL_LENGTH:
        raise _invalid(f"The address is too long; {MAX_URL_LENGTH:,} characters are allowed.")
    if not _PLAIN.fullmatch(url):
        raise _invalid(
            "The address may hold letters of ASCII alone, and no blanks: write other characters "
            "percent-encoded, and other hosts as xn--…"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _invalid("This is not a web address.") from None
    host = parts.hostname or ""
    if parts.scheme not in PORTS or not host:
        raise _invalid("The address must start with https:// (or http://) and name a host.")
    if parts.username is not None or parts.password is not None:
        raise _invalid("Leave user name and password out: the signature says who is calling.")
    if parts.fragment:
        raise _invalid("Leave out what follows the #: it is never sent.")
    port = port or PORTS[parts.scheme]
    if port not in PORTS.values() and port < FIRST_FREE_PORT:
        raise _invalid(f"Port {port} is no web port: use 80, 443, or one from {FIRST_FREE_PORT}.")
    address = _LOOPBACK if _is_localhost(host) else parse_address(host)
    if address is not None:
        _check_named(host, address, allowed_networks)
    elif _NUMERIC_HOST.search(host) or ":" in host:
        raise _invalid("Write an IP address in the usual way, as in 198.51.100.7.")
    return Target(url=url, scheme=parts.scheme, host=host, port=port)


def check_address(address: IPAddress, *, allowed_networks: Iterable[IPNetwork] = ()) -> None:
    """Raise AddressRefused unless the address is public, or in a network that was allowed."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in allowed_networks):
        return
    if any(address in network for network in BLOCKED_NETWORKS):
        # Without the address: what names mean inside is nothing that a workspace should learn.
        raise AddressRefused(
            "The host is not on the public internet: webhooks go to public addresses alone.",
            field="url",
        )


def _check_named(host: str, address: IPAddress, allowed_networks: Iterable[IPNetwork]) -> None:
    """As `check_address`, told to the person who wrote this host, with the way out."""
    try:
        check_address(address, allowed_networks=allowed_networks)
    except AddressRefused:
        message = f"{host} is not on the public internet, so nothing is sent there."
        if address.is_loopback or (address.is_private and not address.is_link_local):
            where = "this machine itself" if address.is_loopback else "inside a private network"
            message = (
                f"{host} is {where} and not on the public internet, so nothing is sent there. Use "
                "an address that can be reached from outside. To try webhooks out in development, "
                "whoever runs Adloom starts it with "
                f"WEBHOOK_ALLOWED_NETWORKS={_example_network(address)}."
            )
        raise AddressRefused(message, field="url") from None


def _is_localhost(host: str) -> bool:
    """Whether the name means the machine itself on every system (RFC 6761)."""
    name = host.rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost")


def _example_network(address: IPAddress) -> str:
    if address.is_loopback and address.version == 4:
        return "127.0.0.0/8"
    return f"{address}/{address.max_prefixlen}"


def parse_address(host: str) -> IPAddress | None:
    """The address that a literal names, without its zone; None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(message, field="url")
