"""Requests through the whole system: bursts handed to a backend, and whole lives of agents."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

from bench import floors
from bench.life_parts import LifeParts, life_parts
from bench.measure import Distribution, Unit, timed
from bench.results import Course, Measured, Point, Reach
from bench.system import Body, System, system
from bench.waiting import LONG_PAUSE_SECONDS, wait_until

BURST = 1_000
LIVES = 300
SHARED = 500
POINTS = 300
RATE, STEADY = 100, 600
_names = (f"job-{number}" for number in itertools.count())


def bursts() -> Iterator[Measured]:
    """1,000 requests at once, until the last one was handed to a backend that only notes it."""
    with system(fleet=False) as whole:

        def singles(bodies: list[Body]) -> None:
            for body in bodies:
                whole.send_single(body)

        yield from _burst(
            whole,
            "burst of single requests",
            f"{BURST:,} tasks of one request each, until all are handed to a backend",
            singles,
            empty_tasks=2 * BURST,
            reach=Reach(1.3, of_floor=True),
        )
        yield from _burst(
            whole,
            "burst in one task",
            f"one task of {BURST:,} requests, until all are handed to a backend",
            whole.send_many,
            empty_tasks=BURST,
            reach=Reach(0.5, of_floor=True),
        )


def _burst(
    whole: System,
    name: str,
    what: str,
    send: Callable[[list[Body]], object],
    *,
    empty_tasks: int,
    reach: Reach,
) -> Iterator[Measured]:
    def prepare() -> list[Body]:
        whole.clear()
        return whole.bodies(next(_names), BURST)

    drained: list[tuple[float, float]] = []

    def work(bodies: list[Body]) -> None:
        begun = time.perf_counter()
        drained.clear()

        def all_are_handed_over() -> bool:
            left = BURST - whole.handed_over()
            drained.append((time.perf_counter() - begun, left))
            return left == 0

        send(bodies)
        wait_until(all_are_handed_over, "all are handed over", pause=LONG_PAUSE_SECONDS)

    with floors.around(
        f"{empty_tasks:,} empty tasks", lambda: floors.empty_bursts(whole.tasks, empty_tasks, 2)
    ) as floor:
        taken = timed(work, prepare=prepare, repeats=5, warm_up=1)
    whole.clear()
    yield floor.measured("sent one by one to a worker like a control worker, until all are done")
    yield Measured(
        name,
        what,
        Unit.SECONDS,
        Distribution.of(taken),
        floor=floor.floor(),
        reach=reach,
        course=Course(f"{name}: requests not handed over yet", _thinned(drained)),
    )


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """As many as a plot shows, the last one included."""
    return [*points[:: max(1, len(points) // POINTS)], points[-1]]


def workers() -> Iterator[Measured]:
    """How many requests a second are handed over, by how many backend workers there are."""
    for count in (1, 2, 4):
        with system(fleet=False, backend_workers=count) as whole:
            rates = []
            for number in range(4):
                whole.clear()
                bodies = whole.bodies(next(_names), SHARED)
                begun = time.perf_counter()
                whole.send_many(bodies)
                wait_until(
                    lambda: whole.handed_over() == SHARED,
                    "all are handed over",
                    pause=LONG_PAUSE_SECONDS,
                )
                if number:
                    rates.append(SHARED / (time.perf_counter() - begun))
            whole.clear()
        yield Measured(
            f"handed over, {count} backend worker{'' if count == 1 else 's'}",
            f"{SHARED} requests in one task, until all are handed to a backend",
            Unit.PER_SECOND,
            Distribution.of(rates),
            point=Point("requests handed over a second", "in one task", "backend workers", count),
        )


def steady() -> Iterator[Measured]:
    """100 requests a second, each until its backend call, beside chains of two tasks."""
    with system(fleet=False) as whole:
        with floors.around(
            "chain of two empty tasks", lambda: whole.tasks.chains(_moments(STEADY // 2))
        ) as floor:
            taken = _from_request_to_backend(whole)
        yield floor.measured(f"under {RATE} chains a second, from sending to the second's end")
        for share, name, bound in ((0.5, "p50", 3.0), (0.99, "p99", 5.0)):
            yield Measured(
                f"steady, {name}",
                f"{RATE} single requests a second, from sending to the backend's call",
                Unit.SECONDS,
                Distribution.of(taken),
                floor=floor.floor(),
                reach=Reach(bound, of_floor=True, share=share),
            )
        whole.clear()


def _moments(count: int) -> Iterator[None]:
    """So many moments, evenly apart, whatever happens at them."""
    begun = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
        yield


def _from_request_to_backend(whole: System) -> list[float]:
    whole.clear()
    bodies = whole.bodies(next(_names), STEADY)
    sent: dict[str, float] = {}
    for body, _ in zip(bodies, _moments(STEADY), strict=True):
        sent[str(body["jobId"])] = time.time()
        whole.send_single(body)
    wait_until(
        lambda: whole.handed_over() == STEADY, "all are handed over", pause=LONG_PAUSE_SECONDS
    )
    return [at - sent[job] for job, at in whole.started_at().items()]


def lives() -> Iterator[Measured]:
    """From a request to the confirmed end of its agent, which registered and did the job."""
    with (
        system(fleet=True) as whole,
        life_parts(whole.place, whole.tasks, LIVES) as parts,
    ):
        yield from _one_by_one(whole, parts)
        yield from _together(whole, parts)


def _one_by_one(whole: System, parts: LifeParts) -> Iterator[Measured]:
    def work(bodies: list[Body]) -> None:
        whole.send_single(bodies[0], wants_answer=True).get(timeout=60, interval=0.002)
        wait_until(lambda: whole.alive() == 0, "the agent is gone")

    with (
        floors.around(floors.ROUND_TRIP, lambda: floors.empty_round_trips(whole.tasks)) as floor,
        floors.around("the parts of a life", parts.alone) as own,
    ):
        taken = timed(work, prepare=lambda: whole.bodies(next(_names), 1), repeats=40, warm_up=5)
    yield floor.measured("one empty task, until its result is back")
    yield own.measured("three empty tasks, four written rows, a session at a bare WebSocket server")
    for name, beside, reach in (
        ("lives, one by one", floor.floor(times=3), Reach(1 / 0.8, of_floor=True)),
        ("lives, one by one, beside their parts", own.floor(), None),
    ):
        yield Measured(
            name,
            "request, reservation, start, registration, job, result, teardown, before the next one",
            Unit.SECONDS,
            Distribution.of(taken),
            floor=beside,
            reach=reach,
        )


def _together(whole: System, parts: LifeParts) -> Iterator[Measured]:
    yield Measured(
        "floor: the parts of lives, together",
        f"four written rows and a session at a bare WebSocket server, {LIVES} at once; no tasks",
        Unit.PER_SECOND,
        Distribution.of([parts.rate(LIVES) for _ in range(3)]),
    )
    rates, commits, writes = [], [], []
    for number in range(4):
        whole.clear()
        bodies = whole.bodies(next(_names), LIVES)
        before = _transactions(whole)
        begun = time.perf_counter()
        whole.send_many(bodies).get(timeout=60, interval=0.002)
        wait_until(lambda: whole.alive() == 0, "all agents are gone", pause=LONG_PAUSE_SECONDS)
        elapsed = time.perf_counter() - begun
        after = _transactions(whole)
        if number:
            rates.append(LIVES / elapsed)
            commits.append((after[0] - before[0]) / LIVES)
            writes.append((after[1] - before[1]) / LIVES)
        ended = whole.place.count("SELECT count(*) FROM scale_requests WHERE state = 'succeeded'")
        assert ended == LIVES, f"{LIVES - ended} jobs did not succeed"
    yield Measured(
        "lives, together",
        f"{LIVES} requests in one task, until every job succeeded and every agent is gone",
        Unit.PER_SECOND,
        Distribution.of(rates),
        reach=Reach(475, at_least=True),
    )
    yield Measured(
        "commits a job",
        "transactions that the database committed for it and wrote in, all processes together",
        Unit.EACH,
        Distribution.of(writes),
        reach=Reach(8),
        details={"with those that only read": round(Distribution.of(commits).p50, 1)},
    )


def _transactions(whole: System) -> tuple[int, int]:
    """How many were committed so far, and how many of any outcome wrote."""
    return (
        whole.place.count(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ),
        whole.place.count("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"),
    )
