"""Which network addresses a webhook may be sent to.

A target's name is somebody else's data: without care it could lead this worker to a cloud's
metadata service or to a neighbour in its own network.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses in which a translator finds the IPv4 address in the last 32 bits (RFC 6052)."""
_LOOKUPS = ThreadPoolExecutor(8, thread_name_prefix="resolve")
"""The operating system's resolver takes no deadline, so nobody waits for it beyond theirs."""


class ForbiddenAddress(Exception):
    """The name leads to an address that may not be connected to."""


class NotResolved(Exception):
    """The name leads nowhere, at least for now."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Only addresses of the public internet, and those of `allowed` networks."""

    allowed: tuple[Network, ...] = ()

    def resolve(self, host: str, port: int, seconds: float) -> tuple[str, ...]:
        """The addresses of a host, every one checked; connect to these and to nothing else.

        Raises:
            ForbiddenAddress: at least one of them may not be connected to.
            NotResolved: there are none, or the answer did not come in time.
        """
        found = _look_up(host, port, seconds)
        for each in found:
            self._check(host, each)
        return found

    def _check(self, host: str, text: str) -> None:
        address = ipaddress.ip_address(text.partition("%")[0])
        if any(address in network for network in self.allowed):
            return
        if not all(map(_is_public, _meant_by(address))):
            raise ForbiddenAddress(
                f"{host} leads to {text}, which is no address of the public internet: if it"
                " is meant, add its network to KICI_WEBHOOK_ALLOWED_NETWORKS"
            )


def _is_public(address: Address) -> bool:
    return address.is_global and not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )


def _meant_by(address: Address) -> Sequence[Address]:
    """Where packets to an address end: itself, or the IPv4 address that it stands for."""
    if not isinstance(address, ipaddress.IPv6Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _TRANSLATED:
        return (ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF),)
    tunnelled = () if address.sixtofour is None else (address.sixtofour,)
    return (address, *tunnelled, *(address.teredo or ()))


def _look_up(host: str, port: int, seconds: float) -> tuple[str, ...]:
    asked = _LOOKUPS.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = asked.result(timeout=seconds)
    except NotInTime as error:
        asked.cancel()
        raise NotResolved(f"the address of {host} was not found in time") from error
    except (OSError, UnicodeError) as error:
        raise NotResolved(f"the address of {host} is not known: {error}") from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
