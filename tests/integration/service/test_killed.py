"""Submitters that are killed and frozen at any moment: whoever asks again finds all exact."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

import pytest

from kici_scaler.service.runtime import Runtime
from tests.integration.service import work
from tests.integration.service.conftest import SCALERS
from tests.integration.service.test_burst import (
    bodies_of,
    check_each_was_served_once,
    churn,
    serve_all,
)
from tests.integration.service.work import PAUSE, Servers
from tests.support.admissions import History
from tests.support.rows import Rows

PROCESSES = 8
LONGER_THAN_ANYBODY_WAITS = (0.1, 0.5, 2.5, 6.0)
"""Seconds; the last is also longer than a holder of the section may stand still."""


@dataclass
class _Crew:
    """Processes that each submit a part, started again whenever they were killed.

    A number is signalled only while nobody has waited for its process, so it is still its own.
    """

    context: ForkServerContext
    servers: Servers
    parts: list[list[dict[str, Any]]]
    chance: random.Random
    running: dict[int, ForkServerProcess] = field(default_factory=dict)
    frozen: dict[int, float] = field(default_factory=dict)
    freezes: tuple[float, ...] = (0.1, 0.5)
    killed: int = 0
    harmed: int = 0

    def start(self, part: int) -> None:
        process = self.context.Process(
            target=work.submit,
            args=(self.servers, self.parts[part]),
            kwargs={"seed": self.chance.randrange(10**6)},
        )
        process.start()
        self.running[part] = process

    def collect(self) -> None:
        """Let go of who is done, and start who was killed again."""
        for part, process in list(self.running.items()):
            if process.exitcode is not None:
                del self.running[part]
                self.frozen.pop(part, None)
                assert process.exitcode in (0, -signal.SIGKILL), f"exit code {process.exitcode}"
                if process.exitcode != 0:
                    self.start(part)

    def harm(self, *, kills: int) -> None:
        """Kill one, or freeze one, for one of `freezes` (seconds)."""
        whole = [part for part in self.running if part not in self.frozen]
        if not whole or self.harmed >= 2 * kills:
            return
        part = self.chance.choice(whole)
        pid = self.running[part].pid
        assert pid is not None
        self.harmed += 1
        if self.chance.random() < 0.6:
            self.killed += 1
            os.kill(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGSTOP)
            self.frozen[part] = self.chance.choice(self.freezes)

    def thaw(self, passed: float) -> None:
        """Wake whose time has come."""
        for part in list(self.frozen):
            self.frozen[part] -= passed
            if self.frozen[part] <= 0:
                del self.frozen[part]
                pid = self.running[part].pid
                assert pid is not None
                os.kill(pid, signal.SIGCONT)

    def end(self) -> None:
        """Leave nothing running."""
        for process in self.running.values():
            process.kill()
            process.join()


@contextmanager
def _crew(
    servers: Servers, bodies: list[dict[str, Any]], seed: int, **more: Any
) -> Iterator[_Crew]:
    parts = [bodies[number::PROCESSES] for number in range(PROCESSES)]
    crew = _Crew(work.fresh_processes(), servers, parts, random.Random(seed), **more)
    try:
        for part in range(PROCESSES):
            crew.start(part)
        yield crew
    finally:
        crew.end()


def _round(
    servers: Servers, bodies: list[dict[str, Any]], seed: int, *, kills: int, **more: Any
) -> int:
    with _crew(servers, bodies, seed, **more) as crew:
        for _ in range(4_000):
            crew.collect()
            if not crew.running:
                return crew.killed
            crew.harm(kills=kills)
            PAUSE.wait(0.02)
            crew.thaw(0.02)
    raise AssertionError(f"seed {seed}: not done in two minutes")


def test_submitters_are_killed_and_frozen_at_any_moment(
    house: History, rows: Rows, runtime: Runtime, servers: Servers
) -> None:
    bodies = bodies_of(4, seed=4)
    with churn(rows):
        killed = _round(servers, bodies, 4, kills=5)
    assert killed > 0
    serve_all(runtime, rows)
    check_each_was_served_once(house, bodies)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_submitters_are_killed_and_frozen_in_hundreds_of_rounds(
    house: History, rows: Rows, runtime: Runtime, servers: Servers
) -> None:
    for seed in range(200):
        bodies = bodies_of(50, seed=10_000 + seed)
        assert len(bodies) == 50 * SCALERS
        with churn(rows):
            _round(servers, bodies, seed, kills=20, freezes=LONGER_THAN_ANYBODY_WAITS)
        serve_all(runtime, rows)
        assert house.violations() == [], f"seed {seed}"
        check_each_was_served_once(house, bodies)
        rows.execute("DELETE FROM spawns; DELETE FROM scale_requests; DELETE FROM history")
