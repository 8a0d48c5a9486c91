"""What all calls of the backend work with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from workers.container import containers, injection, judge
from workers.container.engine import Connection
from workers.container.images import Images
from workers.container.kernel_log import killed_for_memory
from workers.container.marks import container_name, owner_in
from workers.container.records import Records
from workers.container.seen import Seen
from workers.contract import CAPTURED_LINES, ExitCause
from workers.errors import NotDone
from workers.forward import LineSplitter
from workers.network.access import Owner
from workers.network.isolation import Isolation

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Tools:
    """This machine's records, images and network rules; `locks` is a folder for more locks."""

    records: Records
    images: Images
    isolation: Isolation
    locks: Path


def own_container(connection: Connection, owner: Owner) -> Seen | None:
    """The agent's container; None when there is none, or what has its name is not its own."""
    found = containers.find(connection, container_name(owner))
    return found if found is not None and owner_in(found.marks) == owner else None


def wait_for(connection: Connection, answer: Callable[[], bool]) -> bool:
    """Ask again and again until the answer is yes; whether it was in time."""
    pause = Event()
    while not answer():
        if connection.deadline.has_passed:
            return False
        pause.wait(POLL_SECONDS)
    return True


def last_lines(connection: Connection, name: str, lines: int = CAPTURED_LINES) -> tuple[str, ...]:
    """The last lines a container printed, oldest first, without empty ones."""
    if lines <= 0:
        return ()
    splitter = LineSplitter()
    said = splitter.feed(containers.printed(connection, name, 2 * lines)) + splitter.finish()
    return tuple(said[-lines:])


def cause_of(connection: Connection, seen: Seen, *, was_stopped: bool) -> ExitCause:
    """How a container ended, with its last lines and the agent's undelivered result.

    Raises:
        NotDone: the runtime does not say.
    """
    kernel_killed = connection.place.is_local and killed_for_memory(seen.id)
    return judge.cause_of(
        seen,
        was_stopped=was_stopped,
        kernel_killed=kernel_killed,
        log_tail=last_lines(connection, seen.name),
        spool=_spool(connection, seen),
    )


def _spool(connection: Connection, seen: Seen) -> str | None:
    """The agent's result file; a container whose files cannot be read any more has none."""
    with suppress(NotDone):
        content = containers.file(connection, seen.name, injection.RESULT_FILE)
        return None if content is None else content.decode(errors="replace")
    return None
