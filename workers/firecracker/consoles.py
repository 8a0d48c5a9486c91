"""Passing on what guests and their microVMs print, while a worker is there to do it.

Nothing is queued: what could not be passed on yet stays in its file, which is bounded, and the end
of it goes with the agent's outcome in any case. What was printed before this worker began is not
passed on once more.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from workers.errors import BackendError, NotDone
from workers.firecracker import console, described
from workers.firecracker.layout import Layout
from workers.forward import AgentLogForwarder, FileTail, LogOwner

LOOK_SECONDS = 0.5

SERIAL, VMM = "firecracker-serial", "firecracker-vmm"
"""What a line's `logsSource` is; the reference's names."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Followed:
    """One file that is followed, and whose it is."""

    tail: FileTail
    owner: LogOwner


class Consoles:
    """Follows the consoles and logs of all microVMs of a machine.

    Args:
        places: where the microVMs lie that may print something, by agent id.
    """

    def __init__(
        self,
        places: Callable[[], Mapping[str, Layout]],
        emit: Callable[[str], object] | None = None,
    ) -> None:
        self._places = places
        self._forwarder = AgentLogForwarder(emit or _to_standard_output)
        self._followed: dict[Path, _Followed] = {}
        self._has_looked = False
        self._begins = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Follow them from now on, beside everything else. Safe to repeat."""
        with self._begins:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="consoles", daemon=True)
                self._thread.start()

    def look(self) -> None:
        """Pass on what was printed since the last look, and the rest of those that are gone.

        Raises:
            BackendError: the microVMs could not be listed.
            OSError, ValueError: nothing can be passed on.
        """
        there = {
            path: (agent_id, layout, source)
            for agent_id, layout in self._places().items()
            for path, source in ((layout.console, SERIAL), (layout.vmm_log, VMM))
        }
        for path, (agent_id, layout, source) in there.items():
            if path not in self._followed and path.exists():
                self._followed[path] = _Followed(
                    FileTail(path, from_end=not self._has_looked), _owner(agent_id, layout, source)
                )
        self._has_looked = True
        for path, each in list(self._followed.items()):
            if path in there:
                self._pass_on(each.tail.read(), each.owner)
            else:
                del self._followed[path]
                self._pass_on(each.tail.finish(), each.owner)

    def _pass_on(self, lines: Iterator[str], owner: LogOwner) -> None:
        for line in lines:
            level = "error" if console.is_alarming(line) else "debug"
            self._forwarder.forward([line], owner, level)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_SECONDS):
            try:
                self.look()
            except (BackendError, OSError, ValueError) as error:
                _log.warning("consoles of guests are not passed on now", problem=str(error))


def _owner(agent_id: str, layout: Layout, source: str) -> LogOwner:
    about = None
    with suppress(NotDone):
        about = described.read(layout.home)
    if about is None:
        return LogOwner(agent_id, source=source)
    return LogOwner(agent_id, run_id=about.run_id, job_id=about.job_id, source=source)


def _to_standard_output(record: str) -> None:
    """Where the log system collects the lines of agents, as the gateway's are."""
    sys.stdout.write(record + "\n")
    sys.stdout.flush()
