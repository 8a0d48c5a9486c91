"""What the agent has to say, in order, whichever connection it goes by.

First what a message calls for (`say`), then the job's log lines, then its result. The
former is dropped with the connection, since registering says it anew. A log message
counts as delivered when a WebSocket pong sent after it came back; until then it is kept,
and a new connection repeats it first. The result is repeated until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from kici_scaler.agent.lines import BATCH_LINES, Backpressure, LineStore
from kici_scaler.agent.messages import FromAgent, JobFinished, Log
from kici_scaler.agent.vocabulary import Stream

GATHER_SECONDS = 0.1
"""A message that would be small waits this long for company, after an earlier one."""

WINDOW = 8
"""Log messages on their way without a pong; the sender waits for the oldest then."""


class Outbox:
    """Filled by the agent and its job's output, emptied by the open connection."""

    def __init__(self, resend_seconds: float) -> None:
        self._resend_seconds = resend_seconds
        self._changed = asyncio.Event()
        self._said: deque[FromAgent] = deque()
        self.begin("", LineStore())

    def begin(self, job_id: str, store: LineStore) -> None:
        """Start over for a job; nothing of an earlier one is kept."""
        self._job_id = job_id
        self._store = store
        self._seq = 0
        self._unconfirmed: deque[Log] = deque()
        self._again: deque[Log] = deque()
        self._finished: JobFinished | None = None
        self._finished_due = 0.0
        self._gathered_at = 0.0

    @property
    def is_full(self) -> bool:
        """Whether the output should pause, when it may."""
        return self._store.is_full

    def say(self, message: FromAgent) -> None:
        """Send this before anything about the job."""
        self._said.append(message)
        self._changed.set()

    def put(self, stream: Stream, lines: list[bytes]) -> None:
        """Add lines of output."""
        if lines:
            self._store.put(stream, lines)
            self._changed.set()

    def finish(self, message: JobFinished) -> None:
        """The result; no line comes after it. Said again, it is sent again at once."""
        self._finished, self._finished_due = message, 0.0
        self._changed.set()

    def rewind(self) -> None:
        """A new connection begins: what is not known to have arrived goes first."""
        self._said.clear()
        self._again = deque(self._unconfirmed)
        self._finished_due = 0.0
        self._changed.set()

    def confirm(self, log: Log) -> None:
        """This log message and all before it arrived; one of an earlier job is ignored."""
        while self._unconfirmed and log.job_id == self._job_id:
            if self._unconfirmed[0].seq > log.seq:
                break
            self._unconfirmed.popleft()
        self._changed.set()

    def urgent(self) -> list[FromAgent]:
        """Take what was said and not sent, before the connection is closed."""
        said, self._said = list(self._said), deque()
        return said

    async def next(self, max_message_bytes: int) -> FromAgent:
        """The next message, as soon as there is one to send."""
        while True:
            message = self._ready(max_message_bytes)
            if message is not None:
                return message
            self._changed.clear()
            try:
                # Not wait_for: before Python 3.12 it may swallow a cancellation that meets
                # the event, and the sender would wait for ever.
                async with asyncio.timeout(self._until_due()):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _ready(self, max_message_bytes: int) -> FromAgent | None:
        if self._said:
            return self._said.popleft()
        if self._again:
            return self._again.popleft()
        if len(self._store):
            return self._take(max_message_bytes) if self._may_take() else None
        if self._finished is not None and time.monotonic() >= self._finished_due:
            self._finished_due = time.monotonic() + self._resend_seconds
            return self._finished
        return None

    def _take(self, max_message_bytes: int) -> Log | None:
        message = self._store.take(self._job_id, self._seq + 1, max_message_bytes)
        if message is not None:
            self._seq += 1
            self._unconfirmed.append(message)
            self._gathered_at = time.monotonic() + GATHER_SECONDS
        return message

    def _may_take(self) -> bool:
        if self._is_window_full():
            return False
        many = len(self._store) >= BATCH_LINES or self._store.is_full
        return many or self._finished is not None or time.monotonic() >= self._gathered_at

    def _is_window_full(self) -> bool:
        return len(self._unconfirmed) >= WINDOW

    def _until_due(self) -> float | None:
        """Seconds until time alone makes a message ready; None when only an event can."""
        if len(self._store):
            return None if self._is_window_full() else self._gathered_at - time.monotonic()
        return None if self._finished is None else self._finished_due - time.monotonic()


def line_store(mode: Backpressure) -> LineStore:
    """An empty store for one job's output."""
    return LineStore(mode)
