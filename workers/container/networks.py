"""The agents' own network on a runtime: one bridge, shared by all scalers and installations."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

import psutil
from docker import APIClient

from workers.container.engine import Connection
from workers.container.marks import BRIDGE, MANAGED, YES
from workers.errors import BackendError, NotDone

NAME = "kici-agent-net"

BRIDGE_OPTION = "com.docker.network.bridge.name"

SUBNETS = tuple(IPv4Network(f"172.{number}.0.0/16") for number in range(30, 21, -1))
"""The first is the network's; the others stand in where something of the machine has it, such
as the same network of another runtime."""


@dataclass(frozen=True, slots=True)
class AgentNetwork:
    """The network as it is: the bridge's interface, its range, the host's address on it."""

    bridge: str
    network: str
    gateway: str


def ensure(connection: Connection) -> AgentNetwork:
    """The network, made if it is missing, with its bridge in this process's network namespace.

    Raises:
        NotDone: it cannot be made, or rules made here would not reach it.
    """
    found = _look(connection) or _make(connection)
    here = local_addresses()
    if found.gateway not in here.get(found.bridge, ()):
        _bring_here(connection, found)
    return found


def local_addresses() -> Mapping[str, tuple[str, ...]]:
    """The IPv4 addresses of this network namespace, by interface."""
    return {
        name: tuple(each.address for each in addresses if each.family.name == "AF_INET")
        for name, addresses in psutil.net_if_addrs().items()
    }


def free_subnet(taken: Iterable[IPv4Network]) -> IPv4Network | None:
    """The first subnet that overlaps with none of these."""
    others = list(taken)
    return next(
        (each for each in SUBNETS if not any(each.overlaps(other) for other in others)), None
    )


def bridge_of(subnet: IPv4Network) -> str:
    """What the bridge of a subnet is called; at most 15 characters."""
    return f"kici-agents{subnet.network_address.packed[1]}"


def read_network(said: Mapping[str, Any], here: Mapping[str, tuple[str, ...]]) -> AgentNetwork:
    """The network in the answer to an inspection; `here` are the local addresses.

    Raises:
        NotDone: it has no IPv4 range.
    """
    ranges = [each for each in (said.get("IPAM") or {}).get("Config") or () if _is_ipv4(each)]
    if not ranges:
        raise NotDone(f"the network {NAME} has no IPv4 range", hint="remove it: it is made anew")
    network = IPv4Network(ranges[0]["Subnet"])
    gateway = str(ranges[0].get("Gateway") or network[1]).partition("/")[0]
    bearer = next((name for name, addresses in here.items() if gateway in addresses), None)
    named = (said.get("Options") or {}).get(BRIDGE_OPTION) or (said.get("Labels") or {}).get(BRIDGE)
    bridge = named or bearer or f"br-{str(said['Id'])[:12]}"
    return AgentNetwork(bridge, str(network), gateway)


def _look(connection: Connection) -> AgentNetwork | None:
    # The runtime's name filter takes parts of names too.
    found = connection.read("list the networks", lambda api: api.networks(names=[NAME]))
    exact = [each for each in found if each.get("Name") == NAME]
    return read_network(exact[0], local_addresses()) if exact else None


def _make(connection: Connection) -> AgentNetwork:
    subnet = free_subnet(_taken())
    if subnet is None:
        raise NotDone(
            f"no range is free for the network {NAME}: all of "
            f"{', '.join(map(str, SUBNETS))} overlap with networks of this machine",
            hint=f"make a bridge network named {NAME} with a free range yourself",
        )
    try:
        connection.change(f"make the network {NAME}", _creation(subnet))
    except BackendError:
        # Somebody else made it at the same moment, or it happened although it was not answered.
        found = _look(connection)
        if found is None:
            raise
        return found
    return _look(connection) or AgentNetwork(bridge_of(subnet), str(subnet), str(subnet[1]))


def _creation(subnet: IPv4Network) -> Callable[[APIClient], object]:
    def ask(api: APIClient) -> object:
        make: Callable[..., object] = api.create_network
        return make(
            NAME,
            driver="bridge",
            check_duplicate=True,
            enable_ipv6=False,
            ipam={
                "Driver": "default",
                "Config": [{"Subnet": str(subnet), "Gateway": str(subnet[1])}],
            },
            options={BRIDGE_OPTION: bridge_of(subnet)},
            labels={MANAGED: YES, BRIDGE: bridge_of(subnet)},
        )

    return ask


def _taken() -> Iterator[IPv4Network]:
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family.name == "AF_INET" and each.netmask:
                yield IPv4Network(f"{each.address}/{each.netmask}", strict=False)


def _bring_here(connection: Connection, network: AgentNetwork) -> None:
    """Make the bridge that Podman makes with its first container; Docker's must be here."""
    facts = connection.facts
    if not facts.is_podman or facts.is_rootless or not connection.place.is_local:
        raise NotDone(
            f"the bridge {network.bridge} of the network {NAME} is not in this worker's network "
            "namespace, so its agents could not be isolated",
            hint="run the worker on the runtime's own machine in the host's network namespace, "
            "with a runtime that is not rootless, or set `networkIsolation: false`",
        )
    make_bridge(network)


def make_bridge(network: AgentNetwork) -> None:
    """Make the bridge with its address, as the runtime would.

    Raises:
        NotDone: the kernel refuses.
    """
    from pyroute2 import IPRoute, NetlinkError

    length = IPv4Network(network.network).prefixlen
    try:
        with IPRoute() as route:
            found = route.link_lookup(ifname=network.bridge)
            if not found:
                route.link("add", ifname=network.bridge, kind="bridge")
                found = route.link_lookup(ifname=network.bridge)
            route.addr("replace", index=found[0], address=network.gateway, prefixlen=length)
            route.link("set", index=found[0], state="up")
    except (NetlinkError, OSError) as error:
        raise NotDone(f"could not make the bridge {network.bridge}: {error}") from error


def _is_ipv4(written: Mapping[str, Any]) -> bool:
    try:
        return ipaddress.ip_network(written.get("Subnet") or "").version == 4
    except ValueError:
        return False
