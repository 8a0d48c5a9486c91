"""Keeps child processes running: started in order, restarted with backoff, stopped in reverse.

Crash table:
    child killed        its keeper ends what is left of its group, pauses, starts it again
    supervisor killed   the kernel signals every child (see `launch`); processes that a child
                        detached (agents) go on
    start fails         everything that was started is stopped again
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from types import FrameType
from typing import Final, Protocol, Self

from kici_scaler.embedded.errors import StartFailed, StartInterrupted
from kici_scaler.embedded.process import Command, Process, StopStep
from kici_scaler.embedded.restarts import RestartPolicy

READY_POLL: Final = 0.05
TAIL_IN_MESSAGE: Final = 12


class State(StrEnum):
    """Where a child is in its life."""

    STARTING = "starting"
    READY = "ready"
    PAUSING = "pausing"
    """It ended; the next start waits for the backoff."""
    FAILED = "failed"
    """Its very first start failed; it is not tried again."""
    STOPPED = "stopped"


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process to keep running.

    Attributes:
        name: what logs and messages call it.
        command: called before each start; may tidy what a crash left, may raise `KiciError`.
        is_ready: whether it does its work; polled after each start, must not block for long.
        once_ready: called after each start as soon as it is ready.
        ready_within: seconds a start may take.
        stop: signals to end it, each with its grace; SIGKILL follows.
        tier: children of higher tiers are stopped first, those of one tier together.
    """

    name: str
    command: Callable[[], Command]
    is_ready: Callable[[], bool]
    once_ready: Callable[[], None] = _nothing
    ready_within: float = 60.0
    stop: tuple[StopStep, ...] = (StopStep(signal.SIGTERM, 10.0),)
    tier: int = 0


class Listener(Protocol):
    """Hears what children write and what becomes of them; called from several threads."""

    def line(self, name: str, text: str) -> None:
        """A line that the child wrote."""

    def event(self, name: str, text: str) -> None:
        """What the supervisor saw or did."""


class Keeper:
    """One child's life, in a thread that lives as long as the child."""

    def __init__(self, child: Child, listener: Listener, policy: RestartPolicy) -> None:
        self.child = child
        self.state = State.STARTING
        self.error: Exception | None = None
        self.starts = 0
        self._listener = listener
        self._policy = policy
        self._process: Process | None = None
        self._stopping = threading.Event()
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._live, name=child.name, daemon=True)

    def begin(self) -> None:
        """Start the child; returns at once."""
        self._thread.start()

    def settled(self, seconds: float) -> bool:
        """Whether, within that time, its first start has succeeded or failed."""
        return self._settled.wait(seconds)

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def send(self, number: signal.Signals) -> None:
        """Signal the child, if it runs."""
        if (process := self._process) is not None:
            process.send(number)

    def hurry(self) -> None:
        """Kill the child, in the midst of an orderly stop."""
        self._stopping.set()
        self.send(signal.SIGKILL)

    def end(self) -> None:
        """Stop the child for good; returns when it is gone."""
        self._stopping.set()
        # A process that is not known here yet is stopped by its keeper, which looks at
        # `_stopping` after making it known.
        if (process := self._process) is not None:
            process.stop(self.child.stop)
        if self._thread.is_alive():
            self._thread.join()

    def _live(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            ready_for = self._one_life()
            if self._stopping.is_set():
                break
            if not self._settled.is_set():
                self.state = State.FAILED
                self._settled.set()
                return
            failures = self._policy.failures_after(failures, ready_for)
            pause = self._policy.pause(failures)
            self.state = State.PAUSING
            self._listener.event(self.child.name, f"{self.error}; starts again in {pause:g} s")
            self._stopping.wait(pause)
        self.state = State.STOPPED
        self._settled.set()

    def _one_life(self) -> float:
        """Start, watch, reap; the seconds it was ready. `error` says why it ended."""
        self.state = State.STARTING
        try:
            return self._run_once()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the start
            self.error = error
            return 0.0

    def _run_once(self) -> float:
        command = self.child.command()
        process = Process(command, lambda text: self._listener.line(self.child.name, text))
        self._process = process
        self.starts += 1
        try:
            if not self._becomes_ready(process):
                return 0.0
            ready_at = time.monotonic()
            process.wait()
            self.error = StartFailed(_why_ended(self.child.name, process))
            return time.monotonic() - ready_at
        finally:
            process.stop(self.child.stop)

    def _becomes_ready(self, process: Process) -> bool:
        end = time.monotonic() + self.child.ready_within
        while not self._stopping.is_set():
            if process.wait(READY_POLL):
                why = _why_ended(self.child.name, process)
                self.error = StartFailed(why + _last_words(process))
                return False
            if self.child.is_ready():
                self.child.once_ready()
                self.state = State.READY
                self._listener.event(self.child.name, f"ready (pid {process.pid})")
                self._settled.set()
                return True
            if time.monotonic() > end:
                self.error = StartFailed(
                    f"{self.child.name} was not ready within {self.child.ready_within:g} s"
                    + _last_words(process)
                )
                return False
        return False


def _why_ended(name: str, process: Process) -> str:
    code = process.returncode or 0
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"{name} {how}"


def _last_words(process: Process) -> str:
    lines = process.tail()[-TAIL_IN_MESSAGE:]
    return "".join(f"\n  {line}" for line in lines)


class Supervisor:
    """Runs children until told to stop.

    Args:
        children: started together by `run`, or in groups by `start`.
        listener: hears lines and events.
        policy: pauses between restarts.

    Example:
        >>> with Supervisor(listener=listener) as supervisor:
        ...     supervisor.start([postgres, redis])
        ...     supervisor.start([gateway])
        ...     supervisor.wait()
    """

    def __init__(
        self,
        children: Sequence[Child] = (),
        *,
        listener: Listener,
        policy: RestartPolicy | None = None,
    ) -> None:
        self._children = tuple(children)
        self._listener = listener
        self._policy = policy or RestartPolicy()
        self._keepers: dict[str, Keeper] = {}
        self._stop_asked = threading.Event()
        self._ending = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.stop()

    def start(self, children: Iterable[Child]) -> None:
        """Start these together and wait until each is ready.

        Raises:
            StartFailed: one was not; the others still run until `stop`.
            KiciError: what the child's `command` or `once_ready` raised.
            StartInterrupted: a stop was asked for meanwhile.
        """
        group = [Keeper(child, self._listener, self._policy) for child in children]
        for keeper in group:
            self._keepers[keeper.child.name] = keeper
            keeper.begin()
        for keeper in group:
            self._await(keeper, group)

    def _await(self, keeper: Keeper, group: Sequence[Keeper]) -> None:
        while not keeper.settled(READY_POLL):
            if self._stop_asked.is_set():
                raise StartInterrupted
            _raise_failure(group)
        _raise_failure(group)

    def run(self) -> None:
        """Start the children, stay until a signal or `ask_to_stop`, then stop them.

        Raises:
            StartFailed: one was not ready; none is left running.
        """
        with self.stops_on_signals(), suppress(StartInterrupted), self:
            self.start(self._children)
            self.wait()

    def wait(self, seconds: float | None = None) -> bool:
        """Stay until a stop is asked for; False when the time ran out first."""
        return self._stop_asked.wait(seconds)

    def ask_to_stop(self) -> None:
        """Let `wait` and `start` return; callable from a signal handler."""
        self._stop_asked.set()

    def stop(self) -> None:
        """End all children, higher tiers first; returns when they are gone."""
        self._stop_asked.set()
        self._ending = True
        by_tier = sorted(self._keepers.values(), key=_tier, reverse=True)
        for _, group in groupby(by_tier, key=_tier):
            enders = [threading.Thread(target=keeper.end, daemon=True) for keeper in group]
            for ender in enders:
                ender.start()
            for ender in enders:
                ender.join()

    def states(self) -> dict[str, State]:
        """Every child's state by name, in the order of their start."""
        return {name: keeper.state for name, keeper in self._keepers.items()}

    def pid(self, name: str) -> int | None:
        """Process id of a child; None while it does not run."""
        return self._keepers[name].pid

    def starts(self, name: str) -> int:
        """How often a child was started."""
        return self._keepers[name].starts

    def send(self, name: str, number: signal.Signals) -> None:
        """Signal a child, as a fault might."""
        self._keepers[name].send(number)

    @contextmanager
    def stops_on_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask to stop; a second one kills what is still stopping."""
        watched = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._on_signal) for number in watched}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._ending:
            for keeper in self._keepers.values():
                if keeper.child.tier > 0:
                    keeper.hurry()
        self._stop_asked.set()


def _tier(keeper: Keeper) -> int:
    return keeper.child.tier


def _raise_failure(group: Sequence[Keeper]) -> None:
    for keeper in group:
        if keeper.state is State.FAILED and keeper.error is not None:
            raise keeper.error
