"""The connections to one machine: opened when first needed, shared, bounded, with backoff."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from workers.bare_metal.ssh import command as commands
from workers.bare_metal.ssh.command import Ended
from workers.bare_metal.ssh.dial import Connection, Timeouts, dial
from workers.bare_metal.ssh.errors import HostKeyRefused
from workers.bare_metal.ssh.target import Target
from workers.contract import Deadline
from workers.errors import NotDone, OutcomeUnknown, Unreachable

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
"""Between attempts at a machine that cannot be reached."""

Dial = Callable[[Target, Deadline, Timeouts], Connection]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is done at once on one machine.

    An OpenSSH server takes ten sessions a connection unless told otherwise.
    """

    connections: int = 2
    channels: int = 8
    """On each connection."""

    @property
    def commands(self) -> int:
        """Commands at once."""
        return self.connections * self.channels


@dataclass(slots=True, eq=False)
class _Held:
    connection: Connection
    in_use: int = 0
    is_used: bool = False
    is_doubted: bool = False
    """Nothing new goes over it; it is closed when what runs on it is over."""


class Link:
    """All connections to one machine; shared by threads.

    Args:
        jitter: a number in [0, 1) for each pause, so that workers do not come back at once.
    """

    def __init__(
        self,
        target: Target,
        *,
        bounds: Bounds | None = None,
        timeouts: Timeouts | None = None,
        dial: Dial = dial,
        now: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.target = target
        self.heard_at: float | None = None
        """When a command was last answered, by `now`; None before the first."""
        self._bounds = bounds or Bounds()
        self._timeouts = timeouts or Timeouts()
        self._dial = dial
        self._now = now
        self._jitter = jitter
        self._is_over = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._slots = threading.BoundedSemaphore(self._bounds.commands)
        self._state = threading.Lock()
        self._dialing = threading.Lock()
        self._held: list[_Held] = []
        self._failures = 0
        self._closed_until = 0.0
        self._last_failure: Unreachable | None = None

    def run(self, command: str, given: bytes, deadline: Deadline, *, waits: bool = True) -> Ended:
        """Run a command there.

        Args:
            waits: False for a short look that must not queue behind the work.

        Raises:
            Unreachable: there is no connection; asked again too soon, the last reason anew.
            NotDone, OutcomeUnknown: as `command.run` does.
        """
        if self._pid != os.getpid():
            # A fork has the parent's sockets; using them would mix two conversations.
            self._reset()
        with self._slot(deadline) if waits else nullcontext():
            while True:
                with self._connection(deadline, spare=0 if waits else 1) as held:
                    was_used, held.is_used = held.is_used, True
                    try:
                        ended = commands.run(
                            held.connection, command, given, deadline, self._timeouts
                        )
                        self.heard_at = self._now()
                        return ended
                    except (OutcomeUnknown, NotDone) as error:
                        # It may be the connection, whose end nobody announces on a cut line.
                        held.is_doubted = True
                        # Nothing was done over one that ended unnoticed while it was idle.
                        if isinstance(error, OutcomeUnknown) or not was_used:
                            raise

    def close(self) -> None:
        """Keep no connection: idle ones end now, each other one with what runs on it."""
        with self._state:
            self._is_over = True
            idle = [each for each in self._held if each.in_use == 0]
            self._held = [each for each in self._held if each.in_use]
        for each in idle:
            each.connection.close()

    @contextmanager
    def _slot(self, deadline: Deadline) -> Iterator[None]:
        if not self._slots.acquire(timeout=deadline.remaining):
            raise NotDone(f"too much goes on at once on `{self.target.place}`")
        try:
            yield
        finally:
            self._slots.release()

    @contextmanager
    def _connection(self, deadline: Deadline, *, spare: int) -> Iterator[_Held]:
        held = self._free(spare) or self._fresh(deadline, spare)
        try:
            yield held
        finally:
            self._give_back(held)

    def _free(self, spare: int) -> _Held | None:
        """A connection with room, counted as in use; None when one has to be opened."""
        most = self._bounds.channels + spare
        with self._state:
            lost = [each for each in self._held if not each.connection.is_open]
            self._held = [each for each in self._held if each not in lost]
            able = [each for each in self._held if not each.is_doubted and each.in_use < most]
            best = min(able, key=lambda each: each.in_use, default=None)
            if best is not None:
                best.in_use += 1
        for each in lost:
            each.connection.close()
        return best

    def _fresh(self, deadline: Deadline, spare: int) -> _Held:
        """One opens at a time; who waited for that may find room on what was opened."""
        if not self._dialing.acquire(timeout=deadline.remaining):
            raise Unreachable(f"`{self.target.place}` was not reached in time")
        try:
            held = self._free(spare)
            return held if held is not None else self._open(deadline)
        finally:
            self._dialing.release()

    def _open(self, deadline: Deadline) -> _Held:
        pause = self._closed_until - self._now()
        if pause > 0 and self._last_failure is not None:
            raise self._last_failure.again(pause)
        try:
            connection = self._dial(self.target, deadline, self._timeouts)
        except Unreachable as error:
            if deadline.has_passed and not isinstance(error, HostKeyRefused):
                # Too little time says nothing about the machine.
                raise
            self._failures += 1
            longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (self._failures - 1))
            self._closed_until = self._now() + longest * (0.5 + self._jitter() / 2)
            self._last_failure = error
            raise
        self._failures, self._last_failure = 0, None
        held = _Held(connection, in_use=1)
        with self._state:
            self._held.append(held)
        return held

    def _give_back(self, held: _Held) -> None:
        with self._state:
            held.in_use -= 1
            is_over = (held.is_doubted or self._is_over) and held.in_use == 0
            if is_over and held in self._held:
                self._held.remove(held)
        if is_over:
            held.connection.close()
