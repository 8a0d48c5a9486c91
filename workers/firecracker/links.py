"""Bridges and guests' interfaces, by netlink; nothing is read out of text meant for people.

A guest's interface carries its owner as its alias, so that whoever finds it knows whose it is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from workers.errors import NotDone
from workers.firecracker.names import TAP_PREFIX
from workers.network.access import Owner

ALIAS = "kici:"
"""How the alias of a guest's interface begins; its owner follows."""

_UP = 1
_LONGEST_ALIAS = 255


@dataclass(frozen=True, slots=True)
class Link:
    """An interface as it is now.

    Attributes:
        owner: whose it says it is; None for one that says nothing of the kind.
        is_open: whether a process has it open: a guest is behind it.
    """

    index: int
    name: str
    is_up: bool
    is_bridge: bool
    is_tap: bool
    bridge: int | None
    is_isolated: bool
    is_open: bool
    owner: Owner | None


class Links:
    """The interfaces of this network namespace, for as long as it is open.

    Each call raises `NotDone` when the kernel refuses.
    """

    def __init__(self, route: Any) -> None:
        self._route = route

    def all(self) -> tuple[Link, ...]:
        """Every interface."""
        return tuple(_link(each) for each in self._asked("list interfaces", "get_links"))

    def find(self, name: str) -> Link | None:
        """The interface of that name."""
        return next((each for each in self.all() if each.name == name), None)

    def ports(self, bridge: str) -> tuple[Link, ...]:
        """The guests' interfaces on a bridge; others on it are not ours to judge."""
        everything = self.all()
        index = next((each.index for each in everything if each.name == bridge), None)
        return tuple(
            each
            for each in everything
            if index is not None and each.bridge == index and each.name.startswith(TAP_PREFIX)
        )

    def addresses(self, index: int) -> frozenset[str]:
        """The IPv4 addresses of an interface, each with its prefix."""
        found = self._asked("list addresses", "get_addr", index=index, family=2)
        return frozenset(f"{each.get_attr('IFA_ADDRESS')}/{each['prefixlen']}" for each in found)

    def egress(self) -> str | None:
        """The interface of the default route with the best metric; None without such a route."""
        routes = self._asked("list routes", "get_default_routes", family=2)
        best = min(routes, key=lambda each: each.get_attr("RTA_PRIORITY") or 0, default=None)
        if best is None:
            return None
        index = best.get_attr("RTA_OIF")
        return next((each.name for each in self.all() if each.index == index), None)

    def add_bridge(self, name: str) -> None:
        """Make a bridge; one that is there is left as it is."""
        self._asked(f"add bridge {name}", "link", "add", ifname=name, kind="bridge", benign=_EXISTS)

    def add_address(self, index: int, address: str) -> None:
        """Give an interface an address like `10.0.0.1/24`; one that it has stays."""
        ip, _, prefix = address.partition("/")
        self._asked(
            f"add address {address}", "addr", "add",
            index=index, address=ip, prefixlen=int(prefix), benign=_EXISTS,
        )  # fmt: skip

    def set_up(self, index: int) -> None:
        """Switch an interface on."""
        self._asked("set up", "link", "set", index=index, state="up")

    def add_tap(self, name: str, uid: int, gid: int) -> Link:
        """Make a guest's interface that only that user may open.

        Making one of a name that is there would take it over, so nobody else may be making
        interfaces meanwhile.
        """
        if self.find(name) is not None:
            raise NotDone(f"there is an interface {name} already")
        self._asked(
            f"add interface {name}", "link", "add",
            ifname=name, kind="tuntap", mode="tap", uid=uid, gid=gid,
        )  # fmt: skip
        made = self.find(name)
        if made is None:
            raise NotDone(f"the interface {name} was made and is not there")
        return made

    def name_owner(self, index: int, owner: Owner) -> None:
        """Write on an interface whose it is."""
        alias = f"{ALIAS}{owner}"[:_LONGEST_ALIAS]
        self._asked(f"name the owner {owner}", "link", "set", index=index, ifalias=alias)

    def attach(self, index: int, bridge: int) -> None:
        """Put an interface on a bridge."""
        self._asked("attach to the bridge", "link", "set", index=index, master=bridge)

    def isolate(self, index: int) -> None:
        """Let a port of a bridge reach no other isolated port of it."""
        self._asked("isolate the port", "brport", "set", index=index, isolated=1)

    def remove(self, name: str) -> bool:
        """Take an interface away; whether it was there."""
        found = self.find(name)
        if found is None:
            return False
        self._asked(f"remove {name}", "link", "del", index=found.index, benign=_MISSING)
        return True

    def _asked(
        self,
        what: str,
        call: str,
        *arguments: str,
        benign: frozenset[int] = frozenset(),
        **how: Any,
    ) -> list[Any]:
        try:
            answer = getattr(self._route, call)(*arguments, **how)
            return list(answer or ())
        except NetlinkError as error:
            if error.code in benign:
                return []
            raise _refused(what, error, error.code) from error
        except OSError as error:
            raise _refused(what, error, error.errno or 0) from error


_EXISTS = frozenset({errno.EEXIST})
_MISSING = frozenset({errno.ENODEV})


@contextmanager
def opened() -> Iterator[Links]:
    """The interfaces of the network namespace this thread is in.

    Raises:
        NotDone: netlink cannot be used.
    """
    try:
        route = IPRoute()
    except OSError as error:
        raise NotDone(f"netlink cannot be used: {error}") from error
    try:
        yield Links(route)
    finally:
        route.close()


def make_tap(links: Links, name: str, owner: Owner, bridge: str, user: tuple[int, int]) -> Link:
    """A guest's interface on the bridge: owned, isolated, up. What is there already is completed.

    `user` is the uid and gid that may open it. Nobody else may be making interfaces meanwhile.

    Raises:
        NotDone: the bridge is missing, or the name is somebody else's.
    """
    on = links.find(bridge)
    if on is None:
        raise NotDone(
            f"there is no bridge {bridge}", hint="run `kici-scaler firecracker provision`"
        )
    tap = links.find(name)
    if tap is not None and tap.owner is None and tap.is_tap and not tap.is_open:
        # Whoever made it was killed before it said whose it is; nobody is behind it.
        links.remove(name)
        tap = None
    if tap is not None and tap.owner != owner:
        raise NotDone(f"the interface {name} is not this agent's")
    if tap is None:
        tap = links.add_tap(name, *user)
        links.name_owner(tap.index, owner)
    links.attach(tap.index, on.index)
    links.isolate(tap.index)
    links.set_up(tap.index)
    return tap


def _link(message: Any) -> Link:
    about = message.get_attr("IFLA_LINKINFO")
    kind = about.get_attr("IFLA_INFO_KIND") if about else None
    port = about.get_attr("IFLA_INFO_SLAVE_DATA") if about else None
    alias = message.get_attr("IFLA_IFALIAS") or ""
    return Link(
        index=message["index"],
        name=message.get_attr("IFLA_IFNAME"),
        is_up=bool(message["flags"] & _UP),
        is_bridge=kind == "bridge",
        is_tap=kind in ("tun", "tuntap"),
        bridge=message.get_attr("IFLA_MASTER"),
        is_isolated=_is_isolated(port),
        is_open=message.get_attr("IFLA_CARRIER") == 1,
        owner=Owner.parse(alias.removeprefix(ALIAS)) if alias.startswith(ALIAS) else None,
    )


def _is_isolated(port: Any) -> bool:
    # The port of something that is no bridge has its data as plain bytes.
    return hasattr(port, "get_attr") and port.get_attr("IFLA_BRPORT_ISOLATED") == 1


def _refused(what: str, error: Exception, code: int) -> NotDone:
    hint = ""
    if code in (errno.EPERM, errno.EACCES):
        hint = "run the worker as root or with CAP_NET_ADMIN, in the host's network namespace"
    return NotDone(f"the kernel would not {what}: {error}", hint=hint)
