"""The firecracker network block: what its parts have to do with each other."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from kici_scaler.domain.scalers import BackendType
from kici_scaler.scalers_file.models import FirecrackerEntry

NETWORK_OPTION = "network"
"""The option under which a scaler's backend is handed the block."""

SMALLEST_PREFIX = 30
"""One address for the bridge and one for a guest."""


def firecracker_network(entry: FirecrackerEntry) -> dict[str, Any]:
    """The block with every key filled in; gateway and mask follow the network."""
    network = ipaddress.IPv4Network(entry.cidr)
    return {
        **entry.model_dump(mode="json", by_alias=True),
        "gateway": entry.gateway or str(network.network_address + 1),
        "netmask": entry.netmask or str(network.netmask),
    }


def network_of(type_: str, network: Mapping[str, Any]) -> dict[str, Any]:
    """The option of a scaler of that type that tells its backend of the network, if it has one."""
    return {NETWORK_OPTION: dict(network)} if type_ == BackendType.FIRECRACKER.value else {}


def network_mistakes(block: object) -> Iterator[tuple[str, str, str]]:
    """Key, what is expected and a hint, for each part of a raw block that cannot work."""
    if not isinstance(block, dict):
        return
    cidr = block.get("cidr", "10.0.0.0/24")
    if not isinstance(cidr, str):
        return
    network = _network(cidr)
    if network is None or "/" not in cidr:
        yield "cidr", "expected an IPv4 network like 10.0.0.0/24", ""
        return
    if str(network) != cidr:
        yield "cidr", "expected a network without host bits", f"Did you mean {network}?"
    if network.prefixlen > SMALLEST_PREFIX:
        yield "cidr", f"expected a network of /{SMALLEST_PREFIX} or wider", ""
        return
    yield from _gateway_mistakes(block.get("gateway"), network)
    netmask = block.get("netmask")
    if isinstance(netmask, str) and netmask != str(network.netmask):
        yield "netmask", f"expected the mask of {network}", f"Did you mean {network.netmask}?"


def _gateway_mistakes(
    gateway: object, network: ipaddress.IPv4Network
) -> Iterator[tuple[str, str, str]]:
    if not isinstance(gateway, str):
        return
    try:
        address = ipaddress.IPv4Address(gateway)
    except ValueError:
        yield "gateway", "expected an IPv4 address", ""
        return
    ends = (network.network_address, network.broadcast_address)
    if address not in network or address in ends:
        first = network.network_address + 1
        yield "gateway", f"expected a usable address of {network}", f"Did you mean {first}?"


def _network(cidr: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(cidr, strict=False)
    except ValueError:
        return None
