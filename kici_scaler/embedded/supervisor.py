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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from types import FrameType
from typing import Self

from kici_scaler.embedded.child import Child, Listener, State
from kici_scaler.embedded.errors import StartInterrupted
from kici_scaler.embedded.keeper import READY_POLL, Keeper
from kici_scaler.embedded.restarts import RestartPolicy


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
