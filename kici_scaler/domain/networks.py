"""What an agent's network may reach, as an operator wrote it and as rules are built from it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import cast

from kici_scaler.domain.scalers import LabelSet

HOST_ACCESS_EXPECTED = (
    "`address`, `address:port`, `cidr:port` or `*:port` (IPv4 only; a bare number is that port "
    "on any address of the host)"
)
ANY = "*"
_MOST_PORT = 65535


class BadNetwork(ValueError):
    """An address, network or host-access entry that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class HostAccess:
    """One thing on the host that an agent may reach; None is any address, or any port."""

    network: str | None
    port: int | None

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{self.network or ANY}{port}"


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """What a label set's agents may reach.

    Attributes:
        allowlist: networks that stay reachable although private, or although all is denied.
        host_access: None leaves the default in force; empty closes the host entirely; a
            list replaces the default, name service included.
    """

    allowlist: tuple[str, ...] = ()
    deny_all: bool = False
    host_access: tuple[HostAccess, ...] | None = None


def network_policy(label_set: LabelSet) -> NetworkPolicy | None:
    """The policy of a validated label set, or None when it has none."""
    written = label_set.options.get("networkPolicy")
    if written is None:
        return None
    policy = cast("dict[str, object]", written)
    host = cast("tuple[str, ...] | None", policy.get("hostAccess"))
    return NetworkPolicy(
        allowlist=tuple(cast("tuple[str, ...]", policy.get("allowlist") or ())),
        deny_all=policy.get("denyAll") is True,
        host_access=None if host is None else tuple(parse_host_access(each) for each in host),
    )


def parse_cidr(text: str) -> str:
    """An IPv4 address or network in its plain form, host bits cleared (`10.1.2.3/16` is
    `10.1.0.0/16`).

    Raises:
        BadNetwork: anything else, IPv6 and names included.
    """
    try:
        network = ipaddress.IPv4Network(text, strict=False)
    except ValueError as error:
        raise BadNetwork(f"{text[:60]!r} is not an IPv4 network like 10.0.0.0/8") from error
    return str(network) if "/" in text else str(network.network_address)


def parse_host_access(entry: str | int) -> HostAccess:
    """One host-access entry.

    Raises:
        BadNetwork: a name instead of an address, a port out of 1 to 65535, or nothing.
    """
    if isinstance(entry, int):
        return HostAccess(None, _port(str(entry)) if not isinstance(entry, bool) else _port(""))
    text = entry.strip()
    if text.isdecimal():
        return HostAccess(None, _port(text))
    address, colon, port = text.partition(":")
    if not address or (colon and not port):
        raise BadNetwork(f"{entry[:60]!r} is not a host-access entry")
    return HostAccess(
        None if address == ANY else parse_cidr(address),
        None if port in ("", ANY) else _port(port),
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(_MOST_PORT)):
        raise BadNetwork(f"{text[:20]!r} is not a port number")
    port = int(text)
    if not 1 <= port <= _MOST_PORT:
        raise BadNetwork(f"port {port} is outside 1 to {_MOST_PORT}")
    return port
