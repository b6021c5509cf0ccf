"""Webhooks reach the public internet and nothing else, however an address is written or hidden."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpcore
import pytest

from app.errors import InvalidInput
from app.services.safe_http import Answer, RequestError, SafeClient, dial
from app.services.safe_http_addresses import (
    AddressRefused,
    IPAddress,
    check_address,
    check_url,
    parse_address,
)
from tests.certificates import Authority
from tests.webhook_receiver import Receiver, Reply, receiving

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
PUBLIC = "93.184.215.14"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def post(client: SafeClient, url: str) -> Answer:
    target = check_url(url, allowed_networks=client.allowed_networks)
    return client.post(target, headers={"x-test": "1"}, body=b"hello")


class Names:
    """A resolver that gives one list of answers after the other and counts the questions."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[IPAddress]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [ipaddress.ip_address(address) for address in answer]


class Dialled:
    """A connector that notes the address and leads to the test's own receiver instead."""

    def __init__(self, receiver: Receiver, *, dead: tuple[str, ...] = ()) -> None:
        self.addresses: list[tuple[str, int]] = []
        self._receiver = receiver
        self._dead = dead

    def __call__(self, address: str, port: int, timeout_s: float) -> httpcore.NetworkStream:
        self.addresses.append((address, port))
        if address in self._dead:
            raise httpcore.ConnectError("refused")
        return dial("127.0.0.1", self._receiver.port, timeout_s)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254"),
        *("168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8"),
        *("192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1"),
        *("203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
        *("64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:2::1", "2001:10::1"),
        *("2001:20::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fc00::1"),
        *("fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "ff0e::1", "4000::1"),
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused):
        check_address(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", [PUBLIC, "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1",
                "::ffff:1.1.1.1"]
)  # fmt: skip
def test_a_public_address_is_accepted(address: str) -> None:
    check_address(ipaddress.ip_address(address))


def test_an_allowed_network_opens_itself_and_nothing_else() -> None:
    check_address(ipaddress.ip_address("127.0.0.1"), allowed_networks=LOOPBACK)
    check_address(ipaddress.ip_address("::ffff:127.0.0.1"), allowed_networks=LOOPBACK)
    with pytest.raises(AddressRefused):
        check_address(ipaddress.ip_address("10.0.0.1"), allowed_networks=LOOPBACK)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://example.com/", "must start with https"),
        ("file:///etc/passwd", "must start with https"),
        ("gopher://example.com:70/", "must start with https"),
        ("//example.com/hook", "must start with https"),
        ("https://", "name a host"),
        ("https://user:secret@example.com/", "user name and password"),
        ("https://example.com/#part", "follows the #"),
        ("https://example.com:22/", "Port 22 is no web port"),
        ("https://example.com:99999/", "not a web address"),
        ("https://exa mple.com/", "no blanks"),
        ("https://example.com/\nhost: evil", "no blanks"),
        ("https://example.com\\@127.0.0.1/", "letters of ASCII"),
        ("https://bücher.example/", "letters of ASCII"),
        ("https://[::1", "not a web address"),
        ("http://2130706433/", "IP address in the usual way"),
        ("http://0x7f000001/", "IP address in the usual way"),
        ("http://0177.0.0.1/", "IP address in the usual way"),
        ("http://0x7f.0.0.0x1/", "IP address in the usual way"),
        ("http://127.1/", "IP address in the usual way"),
        ("http://127.0.0.1./", "IP address in the usual way"),
        ("http://127.0.0.1/", "127.0.0.1 is this machine itself and not on the public internet"),
        ("http://localhost:8000/", "localhost is this machine itself.*=127.0.0.0/8"),
        ("http://hooks.localhost./", "WEBHOOK_ALLOWED_NETWORKS=127.0.0.0/8"),
        ("http://10.1.2.3/", "10.1.2.3 is inside a private network.*=10.1.2.3/32"),
        ("http://[fd00::1]/", "fd00::1 is inside a private network.*=fd00::1/128"),
        ("http://[::1]/", "not on the public internet"),
        ("http://[::ffff:7f00:1]/", "not on the public internet"),
        ("http://[fe80::1%25eth0]/", "not on the public internet"),
        # No way in is told to what holds a cloud's secrets.
        ("http://169.254.169.254/latest/meta-data/", "public internet, so nothing is sent there.$"),
        ("https://example.com/" + "a" * 2_000, "too long"),
    ],
)
def test_a_url_that_can_be_no_receiver_is_refused_by_its_form(url: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_url(url)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://hooks.example.com/adloom?team=1", "hooks.example.com", 443),
        ("http://example.com", "example.com", 80),
        ("https://EXAMPLE.com:8443/x", "example.com", 8443),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443),
        ("https://[2606:4700::1111]:8443/", "2606:4700::1111", 8443),
        ("https://3com.example/", "3com.example", 443),
    ],
)
def test_a_url_of_a_receiver_is_accepted(url: str, host: str, port: int) -> None:
    target = check_url(url)
    assert (target.host, target.port) == (host, port)


def test_what_the_system_reads_as_loopback_is_refused_where_it_connects(receiver: Receiver) -> None:
    """Even if a numeric host came past the check of its form, the resolved address counts."""
    client = SafeClient()
    for host in ("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"):
        target = check_url("http://example.com/")
        hidden = type(target)(
            url=f"http://{host}:{receiver.port}/", scheme="http", host=host, port=receiver.port
        )
        with pytest.raises(AddressRefused):
            client.post(hidden, headers={}, body=b"")
    assert receiver.received == []


def test_the_checked_address_is_dialled_itself_under_the_name(receiver: Receiver) -> None:
    names, dialled = Names([PUBLIC]), Dialled(receiver)
    client = SafeClient(resolver=names, connector=dialled)
    answer = post(client, "http://hooks.example.com/adloom")
    assert answer.status == 204
    assert dialled.addresses == [(PUBLIC, 80)]
    assert names.asked == ["hooks.example.com"]
    [message] = receiver.received
    assert message.headers["host"] == "hooks.example.com"
    assert message.headers["x-test"] == "1"
    assert message.body == b"hello"


def test_a_name_that_changes_its_meaning_after_the_check_changes_nothing(
    receiver: Receiver,
) -> None:
    """DNS rebinding: the second answer would lead inside, and is never asked for."""
    names, dialled = Names([PUBLIC], ["127.0.0.1"]), Dialled(receiver)
    client = SafeClient(resolver=names, connector=dialled)
    post(client, "http://rebind.example.com/")
    assert (names.asked, dialled.addresses) == (["rebind.example.com"], [(PUBLIC, 80)])
    with pytest.raises(AddressRefused):
        post(client, "http://rebind.example.com/")
    assert dialled.addresses == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        [PUBLIC, "10.0.0.1"],
        ["2606:4700::1111", "::ffff:169.254.169.254"],
        [PUBLIC, "fd00::1"],
    ],
)
def test_a_name_with_one_private_address_is_refused_undialled(
    receiver: Receiver, answers: list[str]
) -> None:
    dialled = Dialled(receiver)
    client = SafeClient(resolver=Names(answers), connector=dialled)
    with pytest.raises(AddressRefused) as caught:
        post(client, "http://mixed.example.com/")
    assert dialled.addresses == []
    assert not any(address in caught.value.message for address in answers)


def test_the_next_address_is_dialled_when_the_first_does_not_answer(receiver: Receiver) -> None:
    dialled = Dialled(receiver, dead=("2606:4700::1111",))
    client = SafeClient(resolver=Names(["2606:4700::1111", PUBLIC]), connector=dialled)
    assert post(client, "http://dual.example.com/").status == 204
    assert [address for address, _ in dialled.addresses] == ["2606:4700::1111", PUBLIC]


def test_a_redirect_is_an_answer_and_not_followed(receiver: Receiver) -> None:
    receiver.answer = lambda message: Reply(
        302, headers={"Location": receiver.url("/elsewhere")} if message.path == "/hook" else {}
    )
    client = SafeClient(allowed_networks=LOOPBACK)
    assert post(client, receiver.url()).status == 302
    assert [message.path for message in receiver.received] == ["/hook"]


def test_a_proxy_of_the_environment_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert post(SafeClient(allowed_networks=LOOPBACK), receiver.url()).status == 204


def test_a_kilobyte_of_the_answer_is_kept(receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(500, b"x" * 5_000_000, {"X-Reason": "broken"})
    answer = post(SafeClient(allowed_networks=LOOPBACK), receiver.url())
    assert (answer.status, answer.body) == (500, b"x" * 1_024)
    assert answer.headers["x-reason"] == "broken"


def test_a_peer_that_never_answers_is_left_after_the_time_limit(receiver: Receiver) -> None:
    release = threading.Event()

    def hang(_: object) -> Reply:
        release.wait(10)
        return Reply()

    receiver.answer = hang
    client = SafeClient(allowed_networks=LOOPBACK, timeout_s=0.3)
    start = time.monotonic()
    with pytest.raises(RequestError, match=r"No answer within 0\.3 s"):
        post(client, receiver.url())
    assert time.monotonic() - start < 3
    release.set()


def test_a_peer_that_answers_drop_by_drop_gains_no_time() -> None:
    """Each byte comes well within a timeout per read; the limit is one for all of them."""
    stop = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            while not stop.wait(0.05):
                try:
                    connection.sendall(b"H")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,), daemon=True)
        thread.start()
        client = SafeClient(allowed_networks=LOOPBACK, timeout_s=0.5)
        start = time.monotonic()
        with pytest.raises(RequestError, match="No answer within"):
            post(client, f"http://127.0.0.1:{server.getsockname()[1]}/")
        assert time.monotonic() - start < 5
        stop.set()
        thread.join()


def test_a_name_without_an_address_and_a_closed_port_are_said_to_be_so() -> None:
    def nowhere(host: str, port: int) -> list[IPAddress]:
        raise socket.gaierror("not known")

    with pytest.raises(RequestError, match=r"The name gone\.example\.com cannot be resolved"):
        post(SafeClient(resolver=nowhere), "http://gone.example.com/")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RequestError, match="The connection failed"):
        post(SafeClient(allowed_networks=LOOPBACK), f"http://127.0.0.1:{port}/")


def test_what_is_no_http_is_a_failure() -> None:
    def shout(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1_000)
            connection.sendall(b"SSH-2.0-hello\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=shout, args=(server,), daemon=True).start()
        with pytest.raises(RequestError):
            post(
                SafeClient(allowed_networks=LOOPBACK),
                f"http://127.0.0.1:{server.getsockname()[1]}/",
            )


def test_tls_is_verified_against_the_name_and_not_the_address(tmp_path: Path) -> None:
    authority = Authority()
    trusting = ssl.create_default_context(cadata=authority.certificate_pem())
    with receiving(authority.server_context("hooks.example.com", tmp_path)) as receiver:
        dialled = Dialled(receiver)

        def client(context: ssl.SSLContext | None) -> SafeClient:
            return SafeClient(resolver=Names([PUBLIC]), connector=dialled, ssl_context=context)

        assert post(client(trusting), "https://hooks.example.com/").status == 204
        with pytest.raises(RequestError, match=r"certificate was not accepted.*mismatch"):
            post(client(trusting), "https://other.example.com/")
        with pytest.raises(RequestError, match="certificate was not accepted"):
            post(client(None), "https://hooks.example.com/")
    assert len(receiver.received) == 1


def test_the_zone_of_a_literal_is_no_part_of_the_address() -> None:
    assert parse_address("fe80::1%eth0") == ipaddress.ip_address("fe80::1")
    assert parse_address("example.com") is None
