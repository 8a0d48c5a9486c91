"""`stop`: end everything of one agent, confirm that it is gone, remove what is kept of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from typing import Any

from . import cgroups, processes
from .folder import AGENT_ID, Folder, Phase, Root
from .processes import Identity, Seen
from .refusal import Refused

_POLL_SECONDS = 0.03
_LOOK_SECONDS = 0.3


def stop(root: Root, content: dict[str, Any], give_up_at: float) -> dict[str, Any]:
    """Answer once nothing of the agent is left: whether anything was.

    With `only_found`, a name of which there is nothing gets no tombstone.

    Raises:
        Refused: `not-owner`; `unknown`, when something still lives at the deadline.
    """
    agent_id, token = str(content["agent_id"]), int(content["token"])
    if not AGENT_ID.fullmatch(agent_id):
        return {"found": False}
    with root.lock(agent_id, give_up_at):
        fence, folder = root.fence(agent_id), root.folder(agent_id)
        fence.require(token)
        record = folder.record
        if record is not None and record["installation_id"] != content["installation_id"]:
            return {"found": False}
        prey = _Prey(folder, str(content["installation_id"]))
        found = folder.path.exists() or bool(prey.living())
        if not found and content.get("only_found"):
            return {"found": False}
        fence.raise_to(token)
        if found:
            _end(folder, prey, float(content["grace_seconds"]), give_up_at)
        root.drop_draft(agent_id)
        fence.raise_to(token, ended=True)
        return {"found": found}


class _Prey:
    """Every process that belongs to the agent, remembered once seen.

    A process keeps belonging when its parent dies before it does, so what was seen below
    the agent is followed to its own end.
    """

    def __init__(self, folder: Folder, installation_id: str) -> None:
        self._folder = folder
        self._marks = folder.marks(installation_id)
        self._known: set[Identity] = set()

    def living(self) -> set[Identity]:
        """Those that run now; the monitor and the asking process are not among them."""
        seen = processes.table()
        self._known |= self._found_in(seen)
        return {each for each in self._known if _is_in(each, seen)}

    def _found_in(self, seen: dict[int, Seen]) -> set[Identity]:
        monitor, process = self._folder.monitor, self._folder.process
        named = {each for each in (monitor, process) if each is not None and _is_in(each, seen)}
        found = named | self._marked(seen)
        record = self._folder.record
        if record is not None:
            inside = cgroups.members(record["cgroups"])
            found |= {seen[pid].identity for pid in inside if pid in seen}
        found |= processes.descendants({each.pid for each in found}, seen)
        spared = processes.ancestors(os.getpid(), seen)
        return {each for each in found if each != monitor and each.pid not in spared}

    def _marked(self, seen: dict[int, Seen]) -> set[Identity]:
        """Those that carry the agent's id, and no mark that says otherwise.

        A job is given the agent's id, and not where the agent lives.
        """
        found = processes.marked("KICI_AGENT_ID", self._folder.agent_id, seen)
        return {
            each
            for each, environment in found.items()
            if all(environment.get(key, value) == value for key, value in self._marks.items())
        }


def _is_in(identity: Identity, seen: dict[int, Seen]) -> bool:
    return identity.pid in seen and seen[identity.pid].identity == identity


def _end(folder: Folder, prey: _Prey, grace_seconds: float, give_up_at: float) -> None:
    if folder.path.exists():
        folder.mark_stopping()
    if folder.settled(give_up_at) is Phase.RUNNING:
        _ask(folder, prey, min(give_up_at, time.monotonic() + grace_seconds))
    _kill(prey, give_up_at)
    _end_monitor(folder, prey, give_up_at)
    folder.remove()


def _ask(folder: Folder, prey: _Prey, until: float) -> None:
    """TERM to the agent's process group, then leave it its grace."""
    process = folder.process
    if process is None:
        return
    _signal(_of_group(process, prey.living()), signal.SIGTERM)
    look_again_at = time.monotonic()
    while process.is_alive and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() >= look_again_at:
            prey.living()
            look_again_at = time.monotonic() + _LOOK_SECONDS


def _of_group(process: Identity, living: set[Identity]) -> set[Identity]:
    found = {each: processes.look(each.pid) for each in living}
    return {each for each, seen in found.items() if seen and seen.group == process.pid}


def _kill(prey: _Prey, give_up_at: float) -> None:
    while True:
        living = prey.living()
        if not living:
            return
        _signal(living, signal.SIGKILL)
        if time.monotonic() >= give_up_at:
            pids = ", ".join(str(each.pid) for each in sorted(living))
            raise Refused("unknown", f"still running: {pids}")
        time.sleep(_POLL_SECONDS)


def _end_monitor(folder: Folder, prey: _Prey, give_up_at: float) -> None:
    """The monitor ends by itself once its last child was reaped; it is made to if it does not."""
    patience = time.monotonic() + 2.0
    while folder.has_monitor:
        if time.monotonic() >= give_up_at:
            raise Refused("unknown", f"the monitor of {folder.agent_id} does not end")
        monitor = folder.monitor
        if monitor is not None and time.monotonic() >= patience:
            _signal([monitor], signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    # What a killed monitor was the parent of has another one now.
    _kill(prey, give_up_at)


def _signal(targets: Iterable[Identity], number: signal.Signals) -> None:
    for each in targets:
        try:
            processes.send(each, number)
        except PermissionError as error:
            raise Refused("unknown", f"process {each.pid} is another user's: {error}") from error
