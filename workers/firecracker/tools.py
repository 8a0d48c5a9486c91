"""What the steps of this backend share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.addresses import AddressBook
from workers.contract import CAPTURED_LINES, ComputeRef, Deadline, ExitCause, ExitKind
from workers.errors import NotDone
from workers.firecracker import console, jail, processes
from workers.firecracker.console import BootFailure
from workers.firecracker.layout import Layout
from workers.firecracker.records import Records
from workers.network.access import Owner
from workers.network.isolation import Isolation
from workers.records import locked


@dataclass(frozen=True, slots=True)
class Tools:
    """The machine as this backend uses it."""

    records: Records
    isolation: Isolation
    addresses: AddressBook | None
    machine_lock: Path

    def alone(self, deadline: Deadline) -> AbstractContextManager[None]:
        """Be the only one on this machine who gives out addresses and interfaces."""
        return locked(self.machine_lock, "giving out addresses", deadline)

    @property
    def book(self) -> AddressBook:
        """The book of addresses.

        Raises:
            NotDone: there is none here.
        """
        if self.addresses is None:
            raise NotDone("guests need addresses, and there is no database to keep them in")
        return self.addresses


def owner_of(agent: ComputeRef) -> Owner:
    """Whose compute it is."""
    return Owner(agent.installation_id, agent.agent_id)


def console_lines(layout: Layout) -> tuple[str, ...]:
    """All that is kept of its console, oldest first.

    Raises:
        NotDone: it is there and cannot be read.
    """
    content = b""
    for path in (layout.console.with_name(f"{layout.console.name}.1"), layout.console):
        try:
            content += path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise NotDone(f"{path} cannot be read: {error}") from error
    return console.lines_of(content)


def vmm_lines(layout: Layout) -> tuple[str, ...]:
    """The end of Firecracker's own log."""
    with suppress(OSError), layout.vmm_log.open("rb") as file:
        file.seek(max(0, layout.vmm_log.stat().st_size - (1 << 16)))
        return console.lines_of(file.read())
    return ()


def log_tail(layout: Layout) -> tuple[str, ...]:
    """The last of what the guest printed; where that is nothing, of what Firecracker did."""
    printed = console.printed(console_lines(layout)) or vmm_lines(layout)
    return printed[-CAPTURED_LINES:]


def cause_of(layout: Layout, *, was_stopped: bool) -> ExitCause:
    """How a microVM that runs no more ended."""
    ended = _ended(layout)
    lines = console_lines(layout)
    tail = log_tail(layout)
    if ended is None:
        kind = ExitKind.STOPPED if was_stopped else ExitKind.VANISHED
        return ExitCause(kind, detail="nothing tells how it ended", log_tail=tail)
    if "start_failed" in ended:
        return ExitCause(ExitKind.START_FAILED, detail=str(ended["start_failed"]), log_tail=tail)
    code = ended.get("vmm")
    if not isinstance(code, int):
        detail = f"the jailer ended with {ended.get('jailer')}"
        return ExitCause(ExitKind.START_FAILED, detail=detail, log_tail=tail)
    if was_stopped:
        return ExitCause(ExitKind.STOPPED, detail="by its teardown", log_tail=tail)
    if code < 0 and _was_out_of_memory(layout.agent_id):
        detail = "Firecracker was killed for passing its memory limit"
        return ExitCause(ExitKind.OUT_OF_MEMORY, detail=detail, log_tail=tail)
    if code < 0:
        detail = f"Firecracker was ended by signal {-code}"
        return ExitCause(ExitKind.SIGNALLED, signal=-code, detail=detail, log_tail=tail)
    return _exited(code, lines, tail)


def _exited(code: int, lines: tuple[str, ...], tail: tuple[str, ...]) -> ExitCause:
    agents = console.exit_code(lines)
    if agents is not None and code == 0:
        detail = f"its agent ended with code {agents}"
        return ExitCause(ExitKind.EXITED, exit_code=agents, detail=detail, log_tail=tail)
    failure = console.classify(lines)
    if failure is BootFailure.UNKNOWN:
        detail = f"Firecracker ended with code {code}"
    else:
        detail = console.told(failure, lines)
    return ExitCause(ExitKind.EXITED, exit_code=code, detail=detail, log_tail=tail)


def _ended(layout: Layout) -> dict[str, Any] | None:
    try:
        said = json.loads(layout.exit.read_text())
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _was_out_of_memory(agent_id: str) -> bool:
    return any(_kills(each) for each in jail.cgroup_folders(agent_id))


def _kills(folder: Path) -> int:
    for name in ("memory.oom_control", "memory.events"):
        with suppress(OSError, ValueError):
            for line in _words(folder / name):
                if line[0] == "oom_kill":
                    return int(line[1])
    return 0


def _words(path: Path) -> Iterator[list[str]]:
    return (line.split() for line in path.read_text().splitlines() if line.split())


def is_over(layout: Layout) -> bool:
    """Whether its microVM has ended, or never will have begun.

    A monitor writes down how it ended after all else has, and may itself live a moment longer.
    """
    return layout.exit.exists() or not processes.of(layout)
