"""Submitters that are killed and frozen at any moment: whoever asks again finds all exact."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

import pytest

from kici_scaler.service.runtime import Runtime
from tests.faults import report
from tests.faults.findings import Findings
from tests.integration.service import work
from tests.integration.service.conftest import SCALERS
from tests.integration.service.test_burst import (
    bodies_of,
    check_each_was_served_once,
    churn,
    serve_all,
    vandal,
)
from tests.integration.service.work import PAUSE, Servers
from tests.support.admissions import History
from tests.support.rows import Rows
from tests.support.waiting import free_port

PROCESSES = 8
LONGER_THAN_ANYBODY_WAITS = (0.1, 0.5, 2.5, 6.0)
"""Seconds; the last is also longer than a holder of the section may stand still."""
LONGEST_ROUND_SECONDS = 900.0
ROUNDS = int(os.environ.get("KICI_ADMISSION_ROUNDS", "50"))
"""Of each kind of mutex in the long form."""


@dataclass
class _Member:
    """A process, held by a descriptor: its number may be somebody else's soon after its end."""

    process: ForkServerProcess
    handle: int
    frozen: float = 0.0

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it is over."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, number)


@dataclass
class _Crew:
    """Processes that each submit a part, started again whenever they were killed."""

    context: ForkServerContext
    servers: Servers
    parts: list[list[dict[str, Any]]]
    chance: random.Random
    members: dict[int, _Member] = field(default_factory=dict)
    freezes: tuple[float, ...] = (0.1, 0.5)
    killed: int = 0
    frozen: int = 0

    @property
    def harmed(self) -> int:
        """How many were killed or frozen."""
        return self.killed + self.frozen

    def start(self, part: int) -> None:
        process = self.context.Process(
            target=work.submit,
            args=(self.servers, self.parts[part]),
            kwargs={"seed": self.chance.randrange(10**6)},
        )
        process.start()
        assert process.pid is not None
        self.members[part] = _Member(process, os.pidfd_open(process.pid))

    def collect(self) -> None:
        """Let go of who is done, and start who was killed again."""
        for part, member in list(self.members.items()):
            code = member.process.exitcode
            if code is not None:
                os.close(self.members.pop(part).handle)
                assert code in (0, -signal.SIGKILL), f"exit code {code}"
                if code != 0:
                    self.start(part)

    def harm(self, *, kills: int) -> None:
        """Kill one, or freeze one, for one of `freezes` (seconds)."""
        awake = [member for member in self.members.values() if not member.frozen]
        if not awake or self.harmed >= 2 * kills:
            return
        member = self.chance.choice(awake)
        if self.chance.random() < 0.6:
            self.killed += 1
            member.signal(signal.SIGKILL)
        else:
            self.frozen += 1
            member.signal(signal.SIGSTOP)
            member.frozen = self.chance.choice(self.freezes)

    def thaw(self, passed: float) -> None:
        """Wake whose time has come."""
        for member in self.members.values():
            if member.frozen:
                member.frozen = max(0.0, member.frozen - passed)
                if not member.frozen:
                    member.signal(signal.SIGCONT)

    def end(self) -> None:
        """Leave nothing running."""
        for member in self.members.values():
            member.signal(signal.SIGKILL)
            member.process.join()
            os.close(member.handle)


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
) -> _Crew:
    with _crew(servers, bodies, seed, **more) as crew:
        end = time.monotonic() + LONGEST_ROUND_SECONDS
        while time.monotonic() < end:
            crew.collect()
            if not crew.members:
                return crew
            crew.harm(kills=kills)
            PAUSE.wait(0.02)
            crew.thaw(0.02)
    raise AssertionError(f"seed {seed}: not done in {LONGEST_ROUND_SECONDS:g} s")


def test_submitters_are_killed_and_frozen_at_any_moment(
    house: History, rows: Rows, runtime: Runtime, servers: Servers
) -> None:
    bodies = bodies_of(4, seed=4)
    with churn(rows):
        crew = _round(servers, bodies, 4, kills=5)
    assert crew.killed > 0
    serve_all(runtime, rows)
    check_each_was_served_once(house, bodies)


class Mutex(StrEnum):
    """What becomes of the mutex, which decides nothing."""

    NONE = "disabled"
    KEPT = "kept"
    LOST = "lost all the time"
    FAILING = "not reachable"


@contextmanager
def _with_mutex(kind: Mutex, database_url: str, redis_url: str) -> Iterator[Servers]:
    urls = {Mutex.NONE: None, Mutex.FAILING: f"redis://127.0.0.1:{free_port()}/0"}
    with ExitStack() as stack:
        if kind is Mutex.LOST:
            stack.enter_context(vandal(redis_url))
        yield Servers(database_url, urls.get(kind, redis_url))


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("mutex", Mutex)
def test_many_rounds_of_killed_and_frozen_submitters_pass_no_cap(
    house: History,
    rows: Rows,
    runtime: Runtime,
    house_url: str,
    redis_url: str,
    mutex: Mutex,
) -> None:
    """In all two hundred rounds, a quarter of them with each kind of mutex."""
    injected: Counter[str] = Counter()
    findings, jobs = Findings(), 0
    for number in range(ROUNDS):
        seed = 10_000 * (1 + list(Mutex).index(mutex)) + number
        bodies = bodies_of(50, seed=seed)
        assert len(bodies) == 50 * SCALERS
        with churn(rows), _with_mutex(mutex, house_url, redis_url) as servers:
            crew = _round(servers, bodies, seed, kills=20, freezes=LONGER_THAN_ANYBODY_WAITS)
        serve_all(runtime, rows)
        injected.update({"submitter killed": crew.killed, "submitter frozen": crew.frozen})
        jobs += len(bodies)
        served = house.reservations()
        findings.over_cap += [f"seed {seed}: {each}" for each in house.violations()]
        findings.lost += [each["jobId"] for each in bodies if each["jobId"] not in served]
        findings.doubled += [job for job, times in served.items() if times > 1]
        report.note_check(jobs, findings)
        report.note_injected(injected)
        assert findings.none, (seed, findings)
        rows.execute("DELETE FROM spawns; DELETE FROM scale_requests; DELETE FROM history")
