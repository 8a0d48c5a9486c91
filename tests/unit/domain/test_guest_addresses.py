"""Addresses of guests: what is usable, what is free, what follows from one."""

from __future__ import annotations

import pytest

from kici_scaler.domain.guest_addresses import (
    GuestNetwork,
    PoolExhausted,
    first_free,
    mac_of,
    usable_range,
)

NETWORK = GuestNetwork("10.0.0.0/24", "10.0.0.1", "255.255.255.0")


@pytest.mark.parametrize(
    ("cidr", "first", "last"),
    [
        ("10.0.0.0/24", "10.0.0.1", "10.0.0.254"),
        ("192.168.100.0/28", "192.168.100.1", "192.168.100.14"),
        ("10.0.0.0/22", "10.0.0.1", "10.0.3.254"),
        ("10.0.0.0/30", "10.0.0.1", "10.0.0.2"),
    ],
)
def test_a_network_has_all_but_its_ends(cidr: str, first: str, last: str) -> None:
    assert usable_range(cidr) == (first, last)


@pytest.mark.parametrize("cidr", ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "1.2/24"])
def test_what_is_no_network_is_refused(cidr: str) -> None:
    with pytest.raises(ValueError, match="invalid CIDR"):
        usable_range(cidr)


@pytest.mark.parametrize("prefix", [31, 32])
def test_a_network_without_room_for_a_guest_is_refused(prefix: int) -> None:
    with pytest.raises(ValueError, match="no room"):
        usable_range(f"10.0.0.0/{prefix}")


@pytest.mark.parametrize(
    ("address", "mac"),
    [
        ("10.0.0.5", "06:00:AC:00:00:05"),
        ("10.0.1.42", "06:00:AC:00:01:2A"),
        ("10.255.255.255", "06:00:AC:FF:FF:FF"),
    ],
)
def test_an_address_has_one_mac(address: str, mac: str) -> None:
    assert mac_of(address) == mac


@pytest.mark.parametrize("address", ["not-an-ip", "10.0.0", "10.0.0.256"])
def test_what_is_no_address_has_none(address: str) -> None:
    with pytest.raises(ValueError, match="invalid IP"):
        mac_of(address)


@pytest.mark.parametrize(
    ("taken", "free"),
    [
        ((), "10.0.0.2"),
        (("10.0.0.2", "10.0.0.3"), "10.0.0.4"),
        (("10.0.0.3",), "10.0.0.2"),
    ],
)
def test_the_lowest_free_address_is_next(taken: tuple[str, ...], free: str) -> None:
    assert first_free(NETWORK, taken) == free


def test_the_bridges_own_address_is_never_given() -> None:
    network = GuestNetwork("10.0.0.0/30", "10.0.0.2", "255.255.255.252")

    assert first_free(network, ()) == "10.0.0.1"
    with pytest.raises(PoolExhausted, match=r"IP pool exhausted.*10\.0\.0\.1 to 10\.0\.0\.2"):
        first_free(network, ("10.0.0.1",))


def test_the_bridge_has_its_address_with_the_prefix() -> None:
    assert NETWORK.bridge_address == "10.0.0.1/24"
