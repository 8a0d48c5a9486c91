"""Webhooks reach the public internet, and what is allowed by name of its network."""

from __future__ import annotations

import ipaddress
import socket
import threading

import pytest

from workers.event.addresses import AddressPolicy, ForbiddenAddress, NotResolved

FORBIDDEN = [
    "127.0.0.1",
    "127.8.9.10",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a00:1::",
]
PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]


def leading_to(monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
    """Let every name lead to these addresses."""

    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.parametrize("address", FORBIDDEN)
def test_addresses_that_are_not_public_are_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    leading_to(monkeypatch, address)
    with pytest.raises(ForbiddenAddress, match="KICI_WEBHOOK_ALLOWED_NETWORKS"):
        AddressPolicy().resolve("hook.example", 443, 5.0)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_let_through(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    leading_to(monkeypatch, address)
    assert AddressPolicy().resolve("hook.example", 443, 5.0) == (address,)


def test_one_forbidden_address_among_public_ones_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leading_to(monkeypatch, "8.8.8.8", "10.0.0.1")
    with pytest.raises(ForbiddenAddress, match=r"10\.0\.0\.1"):
        AddressPolicy().resolve("hook.example", 443, 5.0)


def test_an_allowed_network_is_reached_and_its_neighbours_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = AddressPolicy((ipaddress.ip_network("10.1.0.0/16"),))
    leading_to(monkeypatch, "10.1.2.3")
    assert policy.resolve("hook.example", 443, 5.0) == ("10.1.2.3",)
    leading_to(monkeypatch, "10.2.0.1")
    with pytest.raises(ForbiddenAddress):
        policy.resolve("hook.example", 443, 5.0)


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "localhost", "[::1]"])
def test_other_spellings_of_an_address_are_the_same_address(host: str) -> None:
    with pytest.raises((ForbiddenAddress, NotResolved)):
        AddressPolicy().resolve(host.strip("[]"), 80, 5.0)


def test_a_name_that_leads_nowhere_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(NotResolved, match="not known"):
        AddressPolicy().resolve("hook.example", 443, 5.0)


def test_a_resolver_that_hangs_costs_no_more_than_the_time_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(10) and [])
    with pytest.raises(NotResolved, match="in time"):
        AddressPolicy().resolve("hook.example", 443, 0.05)
    answered.set()
