"""Log lines of agents on their way out: enriched, bounded, never in anyone's way."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TextIO

MOST_WAITING: Final = 10_000
"""Lines that wait for standard output; the reference's bound. More are counted, not kept."""
MOST_CHARACTERS: Final = 65_536
CUT_MARK: Final = " ...[truncated]"


@dataclass(frozen=True, slots=True)
class LineOrigin:
    """Whose lines they are; parts that are None are left out."""

    agent_id: str
    run_id: str | None = None
    request_id: str | None = None
    job_id: str | None = None
    source: str | None = None


def clean(text: str, most: int = MOST_CHARACTERS) -> str:
    """Text that every store takes: no NUL characters, of bounded length."""
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text if len(text) <= most else text[:most] + CUT_MARK


def enrich(line: str, origin: LineOrigin) -> dict[str, object]:
    """The log record of one line.

    A line that is a JSON object keeps its fields; anything else becomes the message of an
    info record. Who it came from overrides what the line says.
    """
    record = _object_in(line)
    if record is None:
        record = {"level": "info", "message": line}
    record["service"] = "agent"
    record["agentId"] = origin.agent_id
    optional: Mapping[str, str | None] = {
        "runId": origin.run_id,
        "requestId": origin.request_id,
        "jobId": origin.job_id,
        "logsSource": origin.source,
    }
    record.update({key: value for key, value in optional.items() if value})
    return record


def _object_in(line: str) -> dict[str, object] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line, parse_constant=_no_such_number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_such_number(text: str) -> float:
    raise ValueError(text)


class LineOutput:
    """Writes records as JSON lines from a thread of its own.

    A reader of standard output that is slow or stuck never delays the gateway: lines that
    find no room are dropped, and a record in their place says how many.
    """

    def __init__(self, target: TextIO | None = None) -> None:
        self._target = target or sys.stdout
        self._waiting: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log-lines", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, record: Mapping[str, object]) -> None:
        """Write this record soon; never blocks."""
        if self._dropped and not self._waiting.full():
            lost, self._dropped = self._dropped, 0
            self._offer({"level": "warn", "service": "gateway", "droppedLines": lost,
                         "message": f"{lost} log lines of agents were dropped here"})  # fmt: skip
        self._offer(record)

    def stop(self, within: float = 2.0) -> None:
        """Write what waits, for a bounded time."""
        try:
            self._waiting.put(None, timeout=within)
        except queue.Full:
            return
        self._thread.join(within)

    def _offer(self, record: Mapping[str, object]) -> None:
        try:
            self._waiting.put_nowait(json.dumps(record, separators=(",", ":")))
        except queue.Full:
            self._dropped += 1

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                self._target.write(line + "\n")
                if self._waiting.empty():
                    self._target.flush()
            except (OSError, ValueError):
                return
