"""Addresses of guests on a bridge: which are usable, which is free, what follows from one."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_MAC_HEAD = "06:00:AC"
"""Locally administered, so no vendor's; the reference's."""


class PoolExhausted(Exception):
    """The network has no free address left."""


@dataclass(frozen=True, slots=True)
class GuestNetwork:
    """A bridge's network: its CIDR, the bridge's own address in it, and the mask guests get."""

    cidr: str
    gateway: str
    netmask: str

    @property
    def prefix(self) -> int:
        """The length of its prefix."""
        return _network(self.cidr).prefixlen

    @property
    def bridge_address(self) -> str:
        """The bridge's own address with its prefix, such as `10.0.0.1/24`."""
        return f"{self.gateway}/{self.prefix}"

    @property
    def range(self) -> str:
        """The usable addresses, for messages."""
        first, last = usable_range(self.cidr)
        return f"{first} to {last}"


@dataclass(frozen=True, slots=True)
class GuestAddress:
    """What one guest has of a network."""

    address: str
    mac: str
    tap: str


def usable_range(cidr: str) -> tuple[str, str]:
    """The first and the last address that a host may have, such as .1 and .254 of a /24.

    Raises:
        ValueError: it is no IPv4 network with a prefix of at most 30.
    """
    network = _network(cidr)
    if network.prefixlen > 30:
        raise ValueError(f"`{cidr}` has no room for a bridge and a guest")
    return str(network.network_address + 1), str(network.broadcast_address - 1)


def mac_of(address: str) -> str:
    """The one MAC of a guest with that address: 10.0.1.42 has 06:00:AC:00:01:2A.

    Raises:
        ValueError: it is no IPv4 address.
    """
    octets = _address(address).packed
    return ":".join([_MAC_HEAD, *(f"{each:02X}" for each in octets[1:])])


def first_free(network: GuestNetwork, taken: Collection[str]) -> str:
    """The lowest usable address that is neither the bridge's nor taken.

    Raises:
        PoolExhausted: there is none.
        ValueError: the network cannot be used.
    """
    unfit = {*taken, network.gateway}
    found = next((each for each in _usable(network.cidr) if each not in unfit), None)
    if found is None:
        raise PoolExhausted(f"IP pool exhausted: every address of {network.range} is taken")
    return found


def _usable(cidr: str) -> Iterator[str]:
    first, last = usable_range(cidr)
    for number in range(int(_address(first)), int(_address(last)) + 1):
        yield str(ipaddress.IPv4Address(number))


def _network(cidr: str) -> ipaddress.IPv4Network:
    if "/" not in cidr:
        raise ValueError(f"invalid CIDR `{cidr}`: it has no prefix")
    try:
        return ipaddress.IPv4Network(cidr, strict=False)
    except ValueError as error:
        raise ValueError(f"invalid CIDR `{cidr}`: {error}") from error


def _address(text: str) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(text)
    except ValueError as error:
        raise ValueError(f"invalid IP address `{text}`") from error
