"""Taking a microVM away with all that was made for it, confirmed, in any state.

The microVM goes first: while it runs, nothing that it uses may go to somebody else. Then its
rules, its interface, its address, its cgroups, and its folder last, which is what it is found by.

Kill table: `kill -9` between any two of these leaves the folder or the record, so the inventory
still has it, and each step is repeated without harm.
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from workers.contract import ComputeRef, Deadline
from workers.errors import BackendError, NotDone, NotOwner, OutcomeUnknown
from workers.firecracker import chroot, described, jail, processes
from workers.firecracker.api import FirecrackerApi
from workers.firecracker.described import Description
from workers.firecracker.layout import Layout
from workers.firecracker.links import opened
from workers.firecracker.processes import Kind
from workers.firecracker.records import Held
from workers.firecracker.tools import Tools, owner_of
from workers.network.access import Owner

GRACE_SECONDS = 5.0
GRACE_POLL_SECONDS = 0.2
"""How long and how often a guest that was asked to end is waited for; the reference's numbers."""

MONITOR_SECONDS = 1.0
"""How long a monitor may take to write down how its microVM ended."""

_log = structlog.get_logger()


class Teardown:
    """One call of `destroy` or `reclaim`."""

    def __init__(self, tools: Tools, agent: ComputeRef, deadline: Deadline) -> None:
        self._tools = tools
        self._agent = agent
        self._owner = owner_of(agent)
        self._deadline = deadline

    def run(self, layout: Layout | None, *, only_found: bool) -> bool:
        """End and remove it; whether there was anything. `layout` is where it should lie."""
        token = self._agent.lease_token
        with self._tools.records.held(self._owner, self._deadline) as held:
            held.record.require(token)
            layout = held.record.layout(self._agent.agent_id) or layout
            found = described.read(layout.home) if layout else None
            if found is not None and found.installation_id != self._owner.installation_id:
                found, layout = None, None
            is_there = found is not None or held.record.has_begun
            if only_found and not is_there:
                return False
            if found is not None and found.lease_token > token:
                raise NotOwner(f"{self._agent.agent_id} was made with a newer lease token")
            held.save(token=token, is_ending=True)
            if layout is not None and is_there:
                clean(self._tools, self._owner, layout, held, self._deadline, gently=True)
            elif self._tools.addresses is not None:
                self._tools.addresses.release(self._owner.agent_id)
            held.save(is_destroyed=True, is_ending=False, base="", tap="", is_told=False)
            return is_there


def clean(
    tools: Tools, owner: Owner, layout: Layout, held: Held, deadline: Deadline, *, gently: bool
) -> None:
    """Take away everything of one agent.

    Args:
        gently: whether its guest may end by itself first.

    Raises:
        OutcomeUnknown: something is still there.
        NotDone: the machine or the database could not be asked.
    """
    if gently:
        _ask_to_end(layout, deadline)
    end_processes(layout, deadline)
    description = _description(layout)
    with suppress_and_tell(owner, "network rules"):
        tools.isolation.forget([owner], deadline)
    taps = {held.record.tap, description.tap if description else ""} - {""}
    _remove_taps(tools, owner, taps, deadline)
    if tools.addresses is not None:
        tools.addresses.release(owner.agent_id)
    remove_cgroups(owner.agent_id, deadline)
    chroot.remove(layout)


def end_processes(layout: Layout, deadline: Deadline) -> None:
    """Kill every process of it, the microVM first, and see them gone.

    A monitor whose microVM has ended is left a moment to write that down.

    Raises:
        OutcomeUnknown: some live still.
    """
    monitors_until = deadline.within(MONITOR_SECONDS)

    def is_over() -> bool:
        nonlocal monitors_until
        found = processes.of(layout)
        others = [each for each in found if each.kind is not Kind.MONITOR]
        for each in others or (found if monitors_until.has_passed else ()):
            processes.kill(each)
        return not found and not processes.of(layout)

    if not processes.wait_until(is_over, deadline, every_seconds=0.05):
        raise OutcomeUnknown(f"processes of {layout.agent_id} are still there")


def remove_cgroups(agent_id: str, deadline: Deadline) -> None:
    """Remove the cgroups of a microVM that has ended; the kernel may need a moment."""

    def is_gone() -> bool:
        for folder in jail.cgroup_folders(agent_id):
            with suppress(OSError):
                folder.rmdir()
        return not jail.cgroup_folders(agent_id)

    if not processes.wait_until(is_gone, deadline.within(GRACE_SECONDS)):
        raise OutcomeUnknown(f"cgroups of {agent_id} are still in use")


def _ask_to_end(layout: Layout, deadline: Deadline) -> None:
    guest = processes.vmm(layout)
    if guest is None:
        return
    try:
        FirecrackerApi(layout.socket).ask_to_end(deadline)
    except BackendError as error:
        # Not every architecture has the keyboard for it; the kill that follows needs none.
        _log.info("a guest could not be asked to end", agent=layout.agent_id, why=str(error))
        return
    grace = deadline.within(min(GRACE_SECONDS, deadline.remaining / 2))
    processes.wait_until(
        lambda: not processes.lives(guest), grace, every_seconds=GRACE_POLL_SECONDS / 4
    )


def _description(layout: Layout) -> Description | None:
    try:
        return described.read(layout.home)
    except NotDone:
        return None


def _remove_taps(tools: Tools, owner: Owner, names: set[str], deadline: Deadline) -> None:
    """Its interfaces: those that carry its name, and one of its own that carries nobody's yet."""
    with tools.alone(deadline), opened() as links:
        for link in links.all():
            is_unnamed = link.name in names and link.is_tap and link.owner is None
            if link.owner == owner or is_unnamed:
                links.remove(link.name)


class suppress_and_tell:  # noqa: N801 - reads like `contextlib.suppress`, which it is
    """Let a failure to remove what harms nobody keep nothing else from being removed."""

    def __init__(self, owner: Owner, what: str) -> None:
        self._owner = owner
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, BackendError):
            return False
        _log.warning(f"{self._what} stay behind", agent=str(self._owner), problem=str(error))
        return True
