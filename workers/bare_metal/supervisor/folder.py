"""What is kept of one agent, and what can be told from it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from . import boxes, cgroups, files, processes
from .fence import Fence
from .processes import Identity
from .refusal import Refused

AGENT_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""What may be an agent id, and so a folder's name."""

SPOOL_LIMIT = 1 << 20
"""Most bytes of a spooled result that are read back."""

_SETTLE_SECONDS = 5.0
_POLL_SECONDS = 0.02


class Phase(Enum):
    """How far an agent's compute is, as its folder and the process table tell it."""

    ABSENT = "absent"
    HALF_MADE = "half-made"
    """Recorded, and certainly never run: nothing that could still run it is alive."""
    STARTING = "starting"
    """Its monitor lives and has not said which process the agent is."""
    RUNNING = "running"
    ENDED = "ended"


class Root:
    """The folder under which everything of this machine is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def agents(self) -> Path:
        """One folder for each agent."""
        return self.path / "agents"

    @property
    def names(self) -> Path:
        """Locks and fences."""
        return self.path / "names"

    @property
    def making(self) -> Path:
        """Folders that are not yet complete."""
        return self.path / "making"

    @property
    def pulls(self) -> Path:
        """Credentials of images that are being pulled."""
        return self.path / "pulls"

    @property
    def attic(self) -> Path:
        """Folders that are on their way out."""
        return self.path / "removed"

    def lock(self, agent_id: str, give_up_at: float) -> files.Lock:
        """The lock of a name, to be held by whoever starts or stops it."""
        return files.Lock(files.make_private(self.names) / f"{agent_id}.lock", give_up_at)

    def fence(self, agent_id: str) -> Fence:
        """The fence of a name."""
        return Fence(self.names / f"{agent_id}.json")

    def folder(self, agent_id: str) -> Folder:
        """The folder of an agent, whether it is there or not."""
        return Folder(self, agent_id)

    def if_unused(self, agent_id: str, do: Callable[[str], None]) -> None:
        """Call with the lock of the name held; not at all when someone else holds it."""
        held = files.try_lock(files.make_private(self.names) / f"{agent_id}.lock")
        if held is not None:
            try:
                do(agent_id)
            finally:
                os.close(held)

    def drop_draft(self, agent_id: str) -> None:
        """Remove a folder that was never completed."""
        files.discard(self.making / agent_id, self.attic)

    def drop_pull(self, agent_id: str) -> None:
        """Remove what a killed pull left."""
        files.remove_tree(self.pulls / agent_id)

    def drop_tombstone(self, agent_id: str) -> None:
        """Forget a name that was destroyed; one in use keeps its fence."""
        fence = self.names / f"{agent_id}.json"
        content = files.read_json(fence)
        if content is not None and content["ended_at"] is not None:
            fence.unlink()
            (self.names / f"{agent_id}.lock").unlink()

    def folders(self) -> list[Folder]:
        """Every agent of which anything is kept, in order of their ids."""
        if not self.agents.is_dir():
            return []
        return [Folder(self, each.name) for each in sorted(self.agents.iterdir())]


class Folder:
    """One agent's folder."""

    def __init__(self, root: Root, agent_id: str, path: Path | None = None) -> None:
        self.root = root
        self.agent_id = agent_id
        self.path = path or root.agents / agent_id
        self.output = self.path / "output.log"
        self.state = self.path / "state"
        self.work = self.path / "work"
        self.token = self.path / "token"
        self.monitor_lock = self.path / "monitor.lock"
        self._stopping = self.path / "stopping"

    def marks(self, installation_id: str) -> dict[str, str]:
        """Variables by which a process of this agent is told from any other process."""
        return {
            "KICI_AGENT_ID": self.agent_id,
            "KICI_INSTALLATION_ID": installation_id,
            "KICI_AGENT_STATE_DIR": str(self.state),
        }

    @property
    def record(self) -> dict[str, Any] | None:
        """Whose it is and what made it; None when nothing is kept of the agent."""
        return files.read_json(self.path / "record.json")

    @record.setter
    def record(self, content: dict[str, Any]) -> None:
        files.write_json(self.path / "record.json", content)

    def claim(self, token: int) -> None:
        """Let the record name the lease that owns it now."""
        record = self.record
        if record is not None and record["token"] != token:
            self.record = {**record, "token": token}

    @property
    def process(self) -> Identity | None:
        """Which process the agent is or was; None before it was forked."""
        return Identity.parse(files.read_json(self.path / "process.json"))

    @process.setter
    def process(self, identity: Identity) -> None:
        files.write_json(self.path / "process.json", identity.as_json())

    @property
    def monitor(self) -> Identity | None:
        """Which process the monitor is or was."""
        return Identity.parse(files.read_json(self.path / "monitor.json"))

    @monitor.setter
    def monitor(self, identity: Identity) -> None:
        files.write_json(self.path / "monitor.json", identity.as_json())

    @property
    def exit(self) -> dict[str, Any] | None:
        """How the agent ended, once that was recorded."""
        return files.read_json(self.path / "exit.json")

    @exit.setter
    def exit(self, cause: dict[str, Any]) -> None:
        files.write_json(self.path / "exit.json", cause)

    @property
    def is_stopping(self) -> bool:
        """Whether its end is wanted, so that a signal is no accident."""
        return self._stopping.exists()

    def mark_stopping(self) -> None:
        """Let its monitor know that its end is wanted."""
        try:
            self._stopping.touch(mode=0o600)
        except OSError as error:
            # Then its end reads as a signal's; ending it is what frees the disk.
            if not files.is_full(error):
                raise

    @property
    def has_monitor(self) -> bool:
        """Whether its monitor lives."""
        return files.is_locked(self.monitor_lock)

    def phase(self) -> Phase:
        """How far it is; the two phases with a monitor and no verdict pass by themselves."""
        if self.record is None:
            return Phase.ABSENT
        process = self.process
        if self.exit is not None:
            return Phase.ENDED
        if process is not None:
            return Phase.RUNNING if process.is_alive else Phase.ENDED
        if self.has_monitor:
            return Phase.STARTING
        # The monitor may have written between the two looks.
        return Phase.HALF_MADE if self.process is None else self.phase()

    def settled(self, give_up_at: float) -> Phase:
        """The phase once it is not `STARTING`.

        Raises:
            Refused: `unknown`, when it still is at that moment.
        """
        while True:
            phase = self.phase()
            if phase is not Phase.STARTING:
                return phase
            if time.monotonic() >= give_up_at:
                raise Refused("unknown", f"the monitor of {self.agent_id} does not answer")
            time.sleep(_POLL_SECONDS)

    def tail(self, count: int) -> list[str]:
        """The last lines the agent printed, oldest first."""
        return files.last_lines([self.output.with_name("output.log.1"), self.output], count)

    def cause(self, last_lines: int, give_up_at: float) -> dict[str, Any]:
        """How it ended, with its last lines and its undelivered result."""
        self._await_verdict(give_up_at)
        cause = self.exit or {
            "kind": "vanished",
            "detail": "the machine was restarted"
            if self._was_before_boot
            else "its process is gone and its monitor left no verdict",
            "exit_code": None,
            "signal": None,
        }
        return {
            **cause,
            "restarted": self._was_before_boot,
            "log_tail": self.tail(last_lines),
            "spool": self._spool(),
        }

    def _await_verdict(self, give_up_at: float) -> None:
        patience = min(give_up_at, time.monotonic() + _SETTLE_SECONDS)
        while self.exit is None and self.has_monitor:
            if time.monotonic() >= patience:
                raise Refused("unknown", f"how {self.agent_id} ended is not written down yet")
            time.sleep(_POLL_SECONDS)

    @property
    def _was_before_boot(self) -> bool:
        process = self.process
        return process is not None and process.boot != processes.boot_id()

    def _spool(self) -> str | None:
        try:
            with (self.state / "result.json").open("rb") as file:
                return file.read(SPOOL_LIMIT).decode(errors="replace")
        except OSError:
            return None

    def remove(self) -> None:
        """Take away what is kept of it; its processes must be gone."""
        record = self.record
        if record is not None:
            boxes.remove(record.get("container"))
            cgroups.remove(record["cgroups"])
        files.discard(self.path, self.root.attic)
