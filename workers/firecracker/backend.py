"""Agents as microVMs."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from kici_scaler.domain.scalers import Scaler
from workers.contract import (
    BackendContext,
    ComputeRef,
    Deadline,
    ExitCause,
    ExitKind,
    Finding,
    FoundCompute,
    LifecycleKind,
    SpawnedCompute,
    SpawnOrder,
    failure_detail,
)
from workers.errors import BackendError, NotDone, Permanent
from workers.firecracker import checks, console, described, disk_guard, tools
from workers.firecracker.api import FirecrackerApi
from workers.firecracker.consoles import Consoles
from workers.firecracker.host_network import HostNetwork
from workers.firecracker.layout import JAILS, Layout, homes_in
from workers.firecracker.records import Records
from workers.firecracker.settings import Bridge, Programs
from workers.firecracker.spawn import Spawn
from workers.firecracker.stock import Stock
from workers.firecracker.teardown import Teardown
from workers.firecracker.tools import Tools, owner_of
from workers.network.access import Owner
from workers.network.isolation import MACHINE_LOCK, Isolation

GUESTS_LOCK = Path("/run/kici/firecracker.lock")
"""Shared by all installations of a host, since its interfaces are."""

_log = structlog.get_logger()


def open_backend(context: BackendContext) -> FirecrackerBackend:
    """The backend of this worker."""
    return FirecrackerBackend(context)


class FirecrackerBackend:
    """Boots each agent in a jailed microVM of its own."""

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        folder = context.state_dir / "firecracker"
        is_root = os.geteuid() == 0
        self._tools = Tools(
            Records(folder / "agents"),
            Isolation(MACHINE_LOCK if is_root else folder / "nftables.lock"),
            context.addresses,
            GUESTS_LOCK if is_root else folder / "guests.lock",
        )
        self._consoles = Consoles(self._places)
        self._bases: frozenset[Path] = frozenset()
        self._bridges: tuple[Bridge, ...] = ()
        self._cleared: set[str] = set()
        self._ended: set[str] = set()

    def prepare(self, scalers: Sequence[Scaler], deadline: Deadline) -> None:
        """Make the bridge ready if it is not, and see that there is room for microVMs."""
        self._tools.records.prune(time.time())
        self._bases = frozenset(Programs.of(each.options).chroot_base for each in scalers)
        self._bridges = tuple(dict.fromkeys(Bridge.of(each.options) for each in scalers))
        self._ensure_bridges(deadline)
        disk_guard.see_to_room(self._stock(), deadline)

    def _ensure_bridges(self, deadline: Deadline) -> None:
        for bridge in self._bridges:
            if HostNetwork(bridge, self._tools.isolation).ensure(deadline):
                _log.info("the bridge was made ready", bridge=bridge.name)
                self._stock().taken(deadline)

    def check(self, scalers: Sequence[Scaler], deadline: Deadline) -> tuple[Finding, ...]:
        return tuple(
            finding
            for scaler in scalers
            for finding in checks.findings_of(
                scaler,
                HostNetwork(Bridge.of(scaler.options), self._tools.isolation),
                deadline,
                has_book=self._context.addresses is not None,
            )
        )

    def spawn(self, order: SpawnOrder, deadline: Deadline) -> SpawnedCompute:
        try:
            return Spawn(self._tools, order, deadline).run()
        except (NotDone, Permanent) as error:
            order.tell(LifecycleKind.FAILED, failure_detail(str(error), error.log_tail))
            raise

    def destroy(self, agent: ComputeRef, deadline: Deadline) -> None:
        self._tear_down(agent, deadline, only_found=False)

    def reclaim(self, agent: ComputeRef, deadline: Deadline) -> bool:
        return self._tear_down(agent, deadline, only_found=True)

    def _tear_down(self, agent: ComputeRef, deadline: Deadline, *, only_found: bool) -> bool:
        layout = self._layout(agent)
        return Teardown(self._tools, agent, deadline).run(layout, only_found=only_found)

    def inventory(self, installation_id: str, deadline: Deadline) -> tuple[FoundCompute, ...]:
        if installation_id != self._context.installation_id:
            return Stock(self._tools, installation_id, self._bases).taken(deadline)
        self._put_right(deadline)
        return self._stock().taken(deadline)

    def _put_right(self, deadline: Deadline) -> None:
        """What prepared the machine may have been undone; that must not hide what is there."""
        try:
            self._ensure_bridges(deadline)
            disk_guard.see_to_room(self._stock(), deadline)
        except BackendError as error:
            _log.error("the machine is not ready for microVMs", problem=str(error), hint=error.hint)

    def reap_orphans(self, scalers: Sequence[Scaler], deadline: Deadline) -> Mapping[str, int]:
        """Remove microVMs that ended, and what nobody owns; how much, by scaler."""
        self._bases = frozenset(Programs.of(each.options).chroot_base for each in scalers)
        stock = self._stock()
        removed = stock.reap_ended(deadline)
        swept = stock.sweep(deadline).total
        if scalers and swept:
            removed[scalers[0].name] = removed.get(scalers[0].name, 0) + swept
        return removed

    def logs(self, agent: ComputeRef, last_lines: int, deadline: Deadline) -> tuple[str, ...]:
        layout = self._own(agent)
        if layout is None or last_lines <= 0:
            return ()
        return console.printed(tools.console_lines(layout))[-last_lines:]

    def exit_cause(self, agent: ComputeRef, deadline: Deadline) -> ExitCause | None:
        layout = self._own(agent)
        if layout is None:
            return ExitCause(ExitKind.ABSENT, detail="there is no microVM of that agent")
        if not tools.is_over(layout):
            return None
        record = self._tools.records.look(owner_of(agent))
        return tools.cause_of(layout, was_stopped=record.is_ending)

    def attend(self, deadline: Deadline) -> Sequence[str]:
        """Clear what guests need no more; agents whose microVMs have ended since the last call.

        From the first call on, what guests print is passed on.
        """
        self._consoles.begin()
        self._clear_connected(deadline)
        places = self._places()
        ended = {agent_id for agent_id, layout in places.items() if layout.exit.exists()}
        news = sorted(ended - self._ended)
        self._ended = ended
        return news

    def _places(self) -> Mapping[str, Layout]:
        """Where the microVMs of this installation lie.

        They are found by their folders, which are few; records are kept for days.
        """
        found: dict[str, Layout] = {}
        for home in _homes(self._bases or self._tools.records.bases()):
            with suppress(NotDone):
                about = described.read(home)
                if about is not None and about.installation_id == self._context.installation_id:
                    found[about.agent_id] = Layout.of_home(home)
        return found

    def _clear_connected(self, deadline: Deadline) -> None:
        """Leave guests whose agents have connected nothing to read any more.

        Their token was there only for as long as the agent needed it; its job has no need of it.
        What cannot be cleared now is tried again, and never harms the agent.
        """
        if self._context.addresses is None:
            return
        connected = self._context.addresses.connected()
        self._cleared &= connected
        for agent_id in sorted(connected - self._cleared):
            if self._clear(agent_id, deadline):
                self._cleared.add(agent_id)

    def _clear(self, agent_id: str, deadline: Deadline) -> bool:
        """Whether nothing of it is left to be cleared."""
        owner = Owner(self._context.installation_id, agent_id)
        try:
            record = self._tools.records.look(owner)
            layout = record.layout(agent_id)
            if layout is None or record.is_cleared or layout.exit.exists():
                return True
            with self._tools.records.held(owner, deadline.within(1)) as held:
                FirecrackerApi(layout.socket).clear_metadata(deadline)
                held.save(is_told=True, is_cleared=True)
        except BackendError as error:
            _log.warning("a guest's metadata is not cleared yet", agent=agent_id, why=str(error))
            return False
        return True

    def _stock(self) -> Stock:
        return Stock(self._tools, self._context.installation_id, self._bases)

    def _own(self, agent: ComputeRef) -> Layout | None:
        """Where the agent's microVM lies, if it is there and this installation's."""
        layout = self._layout(agent)
        if layout is None:
            return None
        description = described.read(layout.home)
        is_own = description and description.installation_id == agent.installation_id
        return layout if is_own else None

    def _layout(self, agent: ComputeRef) -> Layout | None:
        """Where it lies or would lie: as recorded, as its row says, or wherever it is found."""
        recorded = self._tools.records.look(owner_of(agent)).layout(agent.agent_id)
        if recorded is not None:
            return recorded
        ref = agent.ref or {}
        if ref.get("base"):
            return Layout(Path(ref["base"]), agent.agent_id, ref.get("program", JAILS))
        bases = self._bases | self._tools.records.bases()
        if agent.options.get("chrootBaseDir"):
            bases |= {Path(str(agent.options["chrootBaseDir"]))}
        candidates = (Layout(base, agent.agent_id) for base in sorted(bases))
        return next((each for each in candidates if each.home.exists()), None)


def _homes(bases: Collection[Path]) -> Iterator[Path]:
    for base in sorted(bases):
        try:
            yield from homes_in(base)
        except OSError as error:
            raise NotDone(f"{base} cannot be listed: {error}") from error
