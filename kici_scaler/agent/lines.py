"""A job's output as bounded lines: splitting, holding, batching."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from kici_scaler.agent.messages import MAX_LINE_BYTES, Log
from kici_scaler.agent.vocabulary import Stream

CUT_MARK = b" [line cut here]"
HELD_LINES = 10_000
"""Lines held for a gateway that does not take them; the reference's queue."""
HELD_BYTES = 4 << 20
BATCH_LINES = 1_000
ESCAPED = 6
"""JSON needs at most this many bytes for one byte of output (a control character)."""
ENVELOPE_BYTES = 1024
"""Room in a message for everything but the lines."""


class Backpressure(StrEnum):
    """What happens to output that the gateway does not take fast enough."""

    PAUSE = "pause"
    """The command waits in its write; no line is lost."""
    DROP = "drop"
    """The command never waits; lines are lost, and a line in their place says how many."""


@dataclass
class LineSplitter:
    """Cuts a stream of bytes into lines, each at most `cap` bytes.

    The rest of a longer line is skipped and the cut marked; a character that spans two
    chunks stays whole.
    """

    cap: int = MAX_LINE_BYTES
    _held: bytearray = field(default_factory=bytearray)
    _skipping: bool = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without line ends."""
        *whole, rest = data.split(b"\n")
        lines = []
        for piece in whole:
            line = self._complete(piece)
            if line is not None:
                lines.append(line)
        cut = self._hold(rest)
        if cut is not None:
            lines.append(cut)
        return lines

    def finish(self) -> list[bytes]:
        """The last line, when the stream ended without a line end."""
        held, self._held = bytes(self._held), bytearray()
        return [held] if held else []

    def _complete(self, piece: bytes) -> bytes | None:
        if self._skipping:
            self._skipping = False
            return None
        line = bytes(self._held) + piece
        self._held.clear()
        if len(line) > self.cap:
            return cut_line(line, self.cap)
        return line.removesuffix(b"\r")

    def _hold(self, piece: bytes) -> bytes | None:
        if self._skipping:
            return None
        self._held += piece
        if len(self._held) <= self.cap:
            return None
        line = cut_line(bytes(self._held), self.cap)
        self._held.clear()
        self._skipping = True
        return line


def cut_line(line: bytes, cap: int) -> bytes:
    """The first `cap` bytes of a line, not ending in half a character, with a mark."""
    end = cap
    while end > max(0, cap - 4) and line[end] & 0xC0 == 0x80:
        end -= 1
    return line[:end] + CUT_MARK


@dataclass
class LineStore:
    """Lines on their way to the gateway, first in first out, within bounds.

    `on_room` is called when a full store has room again.
    """

    mode: Backpressure = Backpressure.PAUSE
    on_room: Callable[[], None] = lambda: None
    _lines: deque[tuple[Stream, bytes]] = field(default_factory=deque)
    _bytes: int = 0
    _dropped: int = 0
    _was_full: bool = False

    @property
    def is_full(self) -> bool:
        """Whether a bound is reached."""
        return len(self._lines) >= HELD_LINES or self._bytes >= HELD_BYTES

    def __len__(self) -> int:
        return len(self._lines) + (self._dropped > 0)

    def put(self, stream: Stream, lines: list[bytes]) -> None:
        """Add lines; a full store drops them in mode `drop`, and grows in mode `pause`
        by what was already read when the reading was paused."""
        for line in lines:
            if self.is_full:
                self._was_full = True
                if self.mode is Backpressure.DROP:
                    self._dropped += 1
                    continue
            self._mark_gap()
            self._append(stream, line)
        self._was_full = self._was_full or self.is_full

    def take(self, job_id: str, seq: int, max_message_bytes: int) -> Log | None:
        """The next message: lines of one stream, as many as surely fit; None when empty."""
        if not self._lines:
            self._mark_gap()
        if not self._lines:
            return None
        room = (max_message_bytes - ENVELOPE_BYTES) // ESCAPED
        stream = self._lines[0][0]
        batch: list[str] = []
        while self._fits(stream, batch, room):
            line = self._pop()
            room -= len(line) + 1
            if room < 0:
                line = cut_line(line, len(line) + room)
            batch.append(line.decode(errors="replace"))
        self._tell_room()
        return Log(job_id, seq, stream, tuple(batch))

    def _fits(self, stream: Stream, batch: list[str], room: int) -> bool:
        if not self._lines or self._lines[0][0] is not stream or len(batch) >= BATCH_LINES:
            return False
        return not batch or len(self._lines[0][1]) + 1 <= room

    def _append(self, stream: Stream, line: bytes) -> None:
        self._lines.append((stream, line))
        self._bytes += len(line)

    def _pop(self) -> bytes:
        _, line = self._lines.popleft()
        self._bytes -= len(line)
        return line

    def _mark_gap(self) -> None:
        if self._dropped:
            text = f"[{self._dropped} lines dropped: the gateway did not take them in time]"
            self._dropped = 0
            self._append(Stream.AGENT, text.encode())

    def _tell_room(self) -> None:
        if self._was_full and not self.is_full:
            self._was_full = False
            self.on_room()
