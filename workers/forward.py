"""Following what agents print, and passing it on with whose it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

LINE_LIMIT: Final = 65_536
"""Most bytes of one line that are kept; the reference's number."""

TRUNCATED: Final = " [truncated]"
"""What stands at the end of a line that was longer."""

LOST: Final = "[output was lost: it was printed faster than it was read]"
"""The line that stands where a file was turned over more than once between two looks."""

POLL_SECONDS: Final = 0.1
"""How often a followed file is looked at; the reference's number."""

_SLICE_BYTES: Final = 1 << 20


class LineSplitter:
    """Turns pieces of output into lines.

    A line may be spread over pieces; empty lines are left out; of a line longer than `limit`
    bytes the rest is skipped. Characters are never cut in two.
    """

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._held = bytearray()
        self._is_overlong = False

    def feed(self, data: bytes) -> list[str]:
        """The lines that this piece completes."""
        *ended, rest = data.split(b"\n")
        lines = []
        for piece in ended:
            self._hold(piece)
            lines.append(self._take())
        self._hold(rest)
        return [line for line in lines if line]

    def finish(self) -> list[str]:
        """The line that was begun and never ended, if there is one."""
        return [line for line in [self._take()] if line]

    def _hold(self, piece: bytes) -> None:
        room = self._limit - len(self._held)
        self._is_overlong = self._is_overlong or len(piece) > room
        self._held += piece[:room]

    def _take(self) -> str:
        errors = "ignore" if self._is_overlong else "replace"
        line = bytes(self._held).decode(errors=errors).rstrip("\r")
        suffix = TRUNCATED if self._is_overlong else ""
        self._held.clear()
        self._is_overlong = False
        return line + suffix


class FileTail:
    """New lines of a file that grows and is turned over (`<name>` set aside as `<name>.1`).

    Nothing is queued: what the reader has not asked for stays in the file.

    Args:
        from_end: leave out what stands in it already.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        path.touch()
        self._file = path.open("rb")
        if from_end:
            self._file.seek(0, os.SEEK_END)
        self._splitter = LineSplitter()

    def read(self) -> Iterator[str]:
        """The lines completed since the last call, oldest first."""
        yield from self._read_on()
        while self._was_turned_over():
            # What was written between the last look and the turning is still in the old file.
            yield from self._read_on()
            yield from self._next_file()
            yield from self._read_on()

    def finish(self) -> Iterator[str]:
        """The lines completed since, then the one that never was; the tail is then of no use."""
        yield from self.read()
        yield from self._splitter.finish()
        self._file.close()

    def _read_on(self) -> Iterator[str]:
        while data := self._file.read(_SLICE_BYTES):
            yield from self._splitter.feed(data)

    def _was_turned_over(self) -> bool:
        try:
            return self._path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            # Set aside, and the next not yet begun.
            return False

    def _next_file(self) -> Iterator[str]:
        previous, self._file = self._file, self._path.open("rb")
        with previous:
            is_successor = self._is_set_aside(previous.fileno())
        if not is_successor:
            yield from self._splitter.finish()
            yield LOST

    def _is_set_aside(self, descriptor: int) -> bool:
        try:
            aside = self._path.with_name(self._path.name + ".1").stat()
        except FileNotFoundError:
            return False
        return aside.st_ino == os.fstat(descriptor).st_ino


def tail_file(path: Path, stop: Event) -> Iterator[str]:
    """The lines of a file as they are written, until `stop` is set; a missing one is made.

    At the stop, what stands in the file is still given, an unfinished last line included.
    """
    tail = FileTail(path)
    while not stop.is_set():
        yield from tail.read()
        stop.wait(POLL_SECONDS)
    yield from tail.finish()


@dataclass(frozen=True, slots=True)
class LogOwner:
    """Whose output it is; fields that are None or empty are left out of its lines."""

    agent_id: str
    run_id: str | None = None
    job_id: str | None = None
    request_id: str | None = None
    source: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """What is set on each line, over what the line says itself."""
        given = {
            "runId": self.run_id,
            "requestId": self.request_id,
            "jobId": self.job_id,
            "logsSource": self.source,
        }
        kept = {key: value for key, value in given.items() if value}
        return {"service": "agent", "agentId": self.agent_id, **kept}


def forward_line(line: str, owner: LogOwner, level: str = "info") -> Mapping[str, object]:
    """The line as a log record: a JSON object keeps its fields, anything else is a message.

    `level` is that of a message.
    """
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    record = said if isinstance(said, dict) else {"level": level, "message": line}
    return {**record, **owner.fields}


class AgentLogForwarder:
    """Passes lines on as JSON, one record a line."""

    def __init__(self, emit: Callable[[str], object]) -> None:
        self._emit = emit

    def forward(self, lines: Iterable[str], owner: LogOwner, level: str = "info") -> None:
        """Pass on every line until there are no more; `level` is that of a message."""
        for line in lines:
            self._emit(json.dumps(forward_line(line, owner, level), ensure_ascii=False))
