"""A gateway is killed: how its agents come back once it runs again."""

from __future__ import annotations

import signal
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench import waiting
from bench.apart import Apart
from bench.crowd import AWAY, Chronicle
from bench.keeping import processor_seconds
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.programs import GATEWAY

PAUSE_SECONDS = 0.1
PATIENCE_SECONDS = 900.0
wait_until = partial(waiting.wait_until, within=PATIENCE_SECONDS, pause=PAUSE_SECONDS)
"""For thousands of agents, on a machine that is busy with them."""


@dataclass(frozen=True, slots=True)
class Return:
    """How it went; times in seconds from the kill."""

    seconds: float
    """Until every agent was registered at once."""
    away: float
    """Until somebody listened again, as the first agent that got through saw it."""
    registered: Sequence[float]
    attempts: Sequence[float]
    """Connections that found somebody listening."""
    endings: Mapping[str, int]
    """How connections ended that had to be repeated."""
    processor: float
    """Of the new gateway, until the last one was back."""

    @property
    def peak_registrations(self) -> int:
        """The most in any one second."""
        return most_within_a_second(self.registered)

    @property
    def peak_attempts(self) -> int:
        """The most connections begun in any one second."""
        return most_within_a_second(self.attempts)


def most_within_a_second(moments: Sequence[float]) -> int:
    """How many of these fall into the fullest second, wherever it begins."""
    ordered = sorted(moments)
    return max(
        (bisect_left(ordered, since + 1.0) - at for at, since in enumerate(ordered)), default=0
    )


def kill_and_return(roles: Installation, crowd: Apart, count: int) -> Return:
    """Kill the gateway, which is started again, and wait until all are back.

    Raises:
        TimeoutError: they are not.
    """
    before: Chronicle = crowd.ask("chronicle")
    starts = roles.supervisor.starts(GATEWAY)
    killed = time.monotonic()
    roles.kill(GATEWAY, signal.SIGKILL)
    wait_until(lambda: roles.supervisor.starts(GATEWAY) > starts, "the gateway is started again")
    wanted = len(before.registered) + count
    wait_until(
        lambda: crowd.ask("registrations") >= wanted and crowd.ask("online") == count,
        f"all {count:,} agents are back",
    )
    taken = processor_seconds(roles.pids()[GATEWAY])
    return _told(before, crowd.ask("chronicle"), killed, taken)


def _told(before: Chronicle, after: Chronicle, killed: float, taken: float) -> Return:
    if after.left:
        raise AssertionError(f"{len(after.left)} agents left for good: {after.left[:3]}")
    registered = [each - killed for each in after.registered if each >= killed]
    attempts = [each - killed for each in after.attempts if each >= killed]
    endings = {
        how: count - before.endings.get(how, 0)
        for how, count in after.endings.items()
        if count > before.endings.get(how, 0) and how != AWAY
    }
    return Return(
        seconds=max(registered),
        away=min(attempts),
        registered=registered,
        attempts=attempts,
        endings=endings,
        processor=taken,
    )
