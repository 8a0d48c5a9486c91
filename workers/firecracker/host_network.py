"""The host's side of a bridge of microVMs: made, looked at, taken away.

Every step is looked at before it is taken, so that provisioning a machine that is ready changes
nothing, and one that was cut short is completed by the next.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from workers.contract import Deadline
from workers.errors import BackendError, NotDone
from workers.firecracker import baseline, persistence
from workers.firecracker.baseline import Exit
from workers.firecracker.links import Link, Links, opened
from workers.firecracker.names import PROBE_TAP
from workers.firecracker.persistence import Files
from workers.firecracker.settings import Bridge
from workers.network import nft
from workers.network.isolation import MACHINE_LOCK, Isolation

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")

DOCKER_CHAIN = "DOCKER-USER"
"""Where Docker, which drops what it does not know, lets others have their say."""

IPTABLES_SECONDS = 30.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Health:
    """What is missing of a bridge, in words; nothing when it is ready."""

    misses: tuple[str, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether guests may be put on it."""
        return not self.misses

    @property
    def detail(self) -> str:
        """All of it in one line."""
        return "; ".join(self.misses) or "healthy"


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """One bridge of this machine; `root` is where its files lie, `/` on a real one."""

    bridge: Bridge
    isolation: Isolation = field(default_factory=lambda: Isolation(MACHINE_LOCK))
    root: Path = Path("/")

    @property
    def files(self) -> Files:
        """What of it lies on disk."""
        return Files(self.bridge.name, self.root)

    def health(self, deadline: Deadline) -> Health:
        """What is missing. Raises `NotDone` when the machine cannot be asked."""
        with opened() as links:
            found = [*self._link_misses(links)]
        items = nft.listed(baseline.FAMILY, self.bridge.table, deadline)
        return Health((*found, *baseline.misses(items, self.bridge.table)))

    def ensure(self, deadline: Deadline) -> bool:
        """Make the bridge ready if it is not; whether anything had to be done.

        Raises:
            NotDone: it is not ready, and may not or cannot be made so.
        """
        health = self.health(deadline)
        if health.is_healthy:
            return False
        if not self.bridge.provisions_itself:
            raise NotDone(
                f"the bridge {self.bridge.name} is not ready: {health.detail}",
                hint="run `kici-scaler firecracker provision`, "
                "or leave `firecracker.autoProvisionHost` on",
            )
        self.provision(deadline)
        return True

    def provision(self, deadline: Deadline, interface: str | None = None) -> None:
        """Make all of it, in order. Raises `NotDone` with the step that failed."""
        persistence.write_drop_in(self.files)
        with opened() as links:
            way = self._exit(links, interface)
            self._make_bridge(links)
            _forward()
            self.isolation.close(self.bridge.name, self.bridge.network.cidr, deadline)
            self._apply(lambda items: baseline.commands(items, self.bridge.table, way), deadline)
            _tell_docker(self.bridge.network.cidr, deadline)
            self._probe(links)
            for port in links.ports(self.bridge.name):
                if not port.is_isolated:
                    links.isolate(port.index)
        health = self.health(deadline)
        if not health.is_healthy:
            raise NotDone(f"the bridge {self.bridge.name} is not ready: {health.detail}")

    def teardown(self, deadline: Deadline) -> tuple[str, ...]:
        """Take all of it away; what could not be, in words. Living guests lose their network."""
        steps: list[tuple[str, Callable[[], object]]] = [
            ("rules", lambda: self._apply(self._removal, deadline)),
            ("bridge", self._remove_bridge),
            ("files", lambda: persistence.forget(self.files, deadline)),
            ("docker", lambda: _forget_docker(self.bridge.network.cidr, deadline)),
        ]
        failed: list[str] = []
        for name, step in steps:
            try:
                step()
            except BackendError as error:
                failed.append(f"{name}: {error}")
        return tuple(failed)

    def _removal(self, items: tuple[nft.Item, ...]) -> list[nft.Command]:
        return baseline.removal(items, self.bridge.table)

    def _remove_bridge(self) -> None:
        with opened() as links:
            found = links.find(self.bridge.name)
            if found is not None and found.is_bridge:
                links.remove(self.bridge.name)

    def _link_misses(self, links: Links) -> Iterator[str]:
        found = links.find(self.bridge.name)
        if found is None or not found.is_bridge:
            yield f"there is no bridge {self.bridge.name}"
            return
        if not found.is_up:
            yield f"{self.bridge.name} is down"
        if self.bridge.network.bridge_address not in links.addresses(found.index):
            yield f"{self.bridge.name} has no address {self.bridge.network.bridge_address}"
        if not _is_forwarding():
            yield "the machine does not forward"
        loose = sorted(port.name for port in links.ports(found.name) if not port.is_isolated)
        if loose:
            yield f"not isolated: {', '.join(loose)}"

    def _make_bridge(self, links: Links) -> None:
        links.add_bridge(self.bridge.name)
        found = self._bridge(links)
        links.add_address(found.index, self.bridge.network.bridge_address)
        links.set_up(found.index)

    def _bridge(self, links: Links) -> Link:
        found = links.find(self.bridge.name)
        if found is None or not found.is_bridge:
            raise NotDone(f"{self.bridge.name} is there and is no bridge")
        return found

    def _exit(self, links: Links, interface: str | None) -> Exit:
        name = interface or links.egress()
        if name is None:
            raise NotDone(
                "this machine has no default route, so guests would have no way out",
                hint="name the interface with --host-iface",
            )
        if links.find(name) is None:
            raise NotDone(f"there is no interface {name}")
        return Exit(self.bridge.network.cidr, self.bridge.network.gateway, name)

    def _apply(
        self, wanted: Callable[[tuple[nft.Item, ...]], list[nft.Command]], deadline: Deadline
    ) -> None:
        with self.isolation.alone(deadline):
            to_do = wanted(nft.listed(baseline.FAMILY, self.bridge.table, deadline))
            if to_do:
                nft.run(to_do, deadline)

    def _probe(self, links: Links) -> None:
        """See that ports can be isolated at all; a machine that cannot make a guest's interface
        says so where it matters, but one that cannot isolate must not serve."""
        links.remove(PROBE_TAP)
        try:
            probe = links.add_tap(PROBE_TAP, 0, 0)
        except NotDone as error:
            _log.warning("port isolation could not be tried", problem=str(error))
            return
        try:
            links.attach(probe.index, self._bridge(links).index)
            links.isolate(probe.index)
        finally:
            links.remove(PROBE_TAP)


def _is_forwarding() -> bool:
    try:
        return FORWARDING.read_text().strip() == "1"
    except OSError:
        return False


def _forward() -> None:
    if _is_forwarding():
        return
    try:
        FORWARDING.write_text("1")
    except OSError as error:
        raise NotDone(f"forwarding cannot be switched on: {error}") from error


def _tell_docker(cidr: str, deadline: Deadline) -> None:
    for end in ("-s", "-d"):
        rule = [DOCKER_CHAIN, end, cidr, "-j", "ACCEPT"]
        if _iptables(["-C", *rule], deadline) is False:
            _iptables(["-I", *rule], deadline)


def _forget_docker(cidr: str, deadline: Deadline) -> None:
    for end in ("-s", "-d"):
        _iptables(["-D", DOCKER_CHAIN, end, cidr, "-j", "ACCEPT"], deadline)


def _iptables(arguments: list[str], deadline: Deadline) -> bool | None:
    """Whether it was done; None where there is no iptables or no Docker to talk to."""
    if shutil.which("iptables") is None:
        return None
    try:
        done = subprocess.run(
            ["iptables", "-w", "5", *arguments],
            capture_output=True,
            text=True,
            timeout=max(0.1, deadline.within(IPTABLES_SECONDS).remaining),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotDone("`iptables` did not answer in time") from error
    return done.returncode == 0
