"""What an agent may reach: derived from its label set's policy and the gateway's URL."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kici_scaler.domain.networks import (
    HostAccess,
    NetworkPolicy,
    parse_cidr,
    parse_host_access,
)

NAME_SERVICE_PORT = 53

_IMPLICIT_PORTS = {"ws": 80, "http": 80, "wss": 443, "https": 443}


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose rules they are: an agent of an installation."""

    installation_id: str
    agent_id: str

    def __str__(self) -> str:
        return f"{self.installation_id}/{self.agent_id}"

    def is_of(self, backend_type: str) -> bool:
        """Whether its agent was made by that type of backend, by the id that it was given."""
        return self.agent_id.startswith(f"scaler-{backend_type}-")

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner that was written as `str(owner)`; None for anything else."""
        installation_id, slash, agent_id = text.partition("/")
        return cls(installation_id, agent_id) if slash and installation_id and agent_id else None


@dataclass(frozen=True, slots=True)
class Service:
    """A TCP service elsewhere: an IPv4 address and a port."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """What one agent may reach, in plain addresses.

    Attributes:
        address: the agent's own, by which its packets are known.
        gateway: the address of the host on the agent's bridge.
        services: reachable whatever the policy says: the gateway it must connect to, where
            that is not on this host.
        host_access: what of the host itself is reachable; nothing else of it is.
    """

    owner: Owner
    address: str
    gateway: str
    services: tuple[Service, ...] = ()
    allowlist: tuple[str, ...] = ()
    deny_all: bool = False
    host_access: tuple[HostAccess, ...] = ()

    def as_json(self) -> dict[str, object]:
        """All but whose it is and at which address, as plain data."""
        return {
            "gateway": self.gateway,
            "services": [[each.address, each.port] for each in self.services],
            "allowlist": list(self.allowlist),
            "denyAll": self.deny_all,
            "hostAccess": [str(each) for each in self.host_access],
        }

    @classmethod
    def from_json(cls, owner: Owner, address: str, said: Mapping[str, Any]) -> AgentAccess:
        """What was written with `as_json`, for an agent at an address.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        return cls(
            owner,
            address,
            gateway=str(said["gateway"]),
            services=tuple(Service(str(host), int(port)) for host, port in said["services"]),
            allowlist=tuple(parse_cidr(each) for each in said["allowlist"]),
            deny_all=said["denyAll"] is True,
            host_access=tuple(parse_host_access(each) for each in said["hostAccess"]),
        )


def agent_access(
    owner: Owner,
    *,
    address: str,
    gateway: str,
    policy: NetworkPolicy | None,
    gateway_url: str,
    gateway_addresses: Iterable[str],
) -> AgentAccess:
    """What the agent at `address` may reach.

    `gateway_addresses` are the IPv4 addresses that the host in `gateway_url` has.
    """
    policy = policy or NetworkPolicy()
    port = port_of(gateway_url)
    host_access = policy.host_access
    return AgentAccess(
        owner=owner,
        address=address,
        gateway=gateway,
        services=()
        if port is None
        else tuple(Service(each, port) for each in sorted(set(gateway_addresses))),
        allowlist=policy.allowlist,
        deny_all=policy.deny_all,
        host_access=default_host_access(gateway, gateway_url)
        if host_access is None
        else host_access,
    )


def default_host_access(gateway: str, gateway_url: str) -> tuple[HostAccess, ...]:
    """What of the host is reachable where the policy does not say.

    Its name service on the bridge, and the port agents connect to on any of its addresses.
    """
    name_service = HostAccess(gateway, NAME_SERVICE_PORT)
    port = port_of(gateway_url)
    connect = () if port is None else (HostAccess(None, port),)
    return tuple(dict.fromkeys([name_service, *connect]))


def port_of(url: str) -> int | None:
    """The port a URL leads to, its scheme's when it names none; None when nothing tells."""
    try:
        parts = urlsplit(url)
        return parts.port or (_IMPLICIT_PORTS.get(parts.scheme) if parts.hostname else None)
    except ValueError:
        return None


def host_of(url: str) -> str | None:
    """The host name or address in a URL; None when there is none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def is_ipv4(text: str) -> bool:
    """Whether it is an IPv4 address."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
