"""Many processes at once, many scalers, every kind of cap: none is passed and all are served."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from kici_scaler.broker import mutex
from kici_scaler.domain.request import Result
from kici_scaler.service import admit
from kici_scaler.service.runtime import Runtime
from tests.integration.service import work
from tests.integration.service.conftest import PROCESSES, SCALERS, many_scalers
from tests.integration.service.work import Servers
from tests.support.admissions import FINISH_SOME, History
from tests.support.rows import Rows
from tests.support.waiting import free_port

BEAT = "UPDATE machines SET last_heartbeat = clock_timestamp()"
"""As the workers of the machines do, so that they are never taken for gone."""


def bodies_of(each: int, seed: int) -> list[dict[str, Any]]:
    """So many requests for each scaler, one after another in any order."""
    chance = random.Random(seed)
    found = [
        work.body(f"job-{seed}-{scaler}-{number}", f"scaler-{scaler}", cpus=chance.choice([1, 2]))
        for scaler, number in itertools.product(range(SCALERS), range(each))
    ]
    chance.shuffle(found)
    return found


@contextmanager
def churn(rows: Rows) -> Iterator[None]:
    """Agents end all the time."""
    over = threading.Event()

    def end_some() -> None:
        while not over.wait(0.01):
            rows.execute(FINISH_SOME, most=5)
            rows.execute(BEAT)

    thread = threading.Thread(target=end_some)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


@contextmanager
def vandal(url: str) -> Iterator[None]:
    """Somebody keeps taking the mutex away from whoever holds it."""
    over = threading.Event()

    def vandalise() -> None:
        with redis.Redis.from_url(url) as client:
            while not over.wait(0.001):
                client.delete(mutex.KEY)

    thread = threading.Thread(target=vandalise)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def _burst(
    processes: ProcessPoolExecutor, servers: Servers, bodies: list[dict[str, Any]], seed: int
) -> list[Any]:
    parts = [bodies[number::PROCESSES] for number in range(PROCESSES)]
    running = [
        processes.submit(work.submit, servers, part, seed=seed + number)
        for number, part in enumerate(parts)
    ]
    return [answer for done in running for answer in done.result(120)]


def serve_all(runtime: Runtime, rows: Rows) -> None:
    """Everything that ends makes room; until nobody waits."""
    for _ in range(1_000):
        rows.execute(BEAT)
        rows.execute(FINISH_SOME, most=1_000)
        work.run_pass(runtime)
        if rows.count("scale_requests", "state = 'waiting'") == 0:
            return
    raise AssertionError("somebody waits for ever")


def _check(history: History, bodies: list[dict[str, Any]], answers: list[Any]) -> None:
    assert history.violations() == []
    assert {answer.job_id for answer in answers} == {each["jobId"] for each in bodies}
    allowed = {Result.SPAWNING, Result.AT_CAPACITY, Result.QUEUED}
    assert {answer.result for answer in answers} <= allowed


def check_each_was_served_once(history: History, bodies: list[dict[str, Any]]) -> None:
    """Nobody was forgotten, nobody was doubled, and no cap was ever passed."""
    assert history.violations() == []
    assert history.reservations() == {each["jobId"]: 1 for each in bodies}


@pytest.mark.parametrize("kind", ["none", "redis", "vandalised", "failing"])
def test_no_cap_is_passed_whatever_becomes_of_the_mutex(
    processes: ProcessPoolExecutor,
    house: History,
    rows: Rows,
    runtime: Runtime,
    house_url: str,
    redis_url: str,
    kind: str,
) -> None:
    urls = {"none": None, "failing": f"redis://127.0.0.1:{free_port()}/0"}
    servers = Servers(house_url, urls.get(kind, redis_url))
    bodies = bodies_of(10, seed=1)
    with churn(rows):
        if kind == "vandalised":
            with vandal(redis_url):
                answers = _burst(processes, servers, bodies, 1)
        else:
            answers = _burst(processes, servers, bodies, 1)
    _check(house, bodies, answers)
    serve_all(runtime, rows)
    check_each_was_served_once(house, bodies)


def test_without_an_end_every_place_is_filled_and_no_more(
    processes: ProcessPoolExecutor, house: History, rows: Rows, runtime: Runtime, servers: Servers
) -> None:
    bodies = bodies_of(10, seed=2)
    _check(house, bodies, _burst(processes, servers, bodies, 2))
    before = rows.count("spawns")
    admit.run_pass(runtime)
    assert rows.count("spawns") == before > 30
    waiting = rows.all("SELECT wait_code, wait_reason FROM scale_requests WHERE state = 'waiting'")
    assert len(waiting) == len(bodies) - before
    assert {row.wait_code for row in waiting} == {"at-capacity"}
    assert all(row.wait_reason for row in waiting)


def test_caps_that_change_in_the_middle_hold_for_whom_they_decide(
    processes: ProcessPoolExecutor,
    house: History,
    rows: Rows,
    servers: Servers,
    runtime: Runtime,
    tmp_path: Path,
) -> None:
    bodies = bodies_of(10, seed=3)
    over = threading.Event()

    def reload() -> None:
        for most in itertools.cycle((5, 45, 20)):
            house.configure(tmp_path, many_scalers(most))
            if over.wait(0.1):
                house.configure(tmp_path, many_scalers())
                return

    thread = threading.Thread(target=reload)
    with churn(rows):
        thread.start()
        answers = _burst(processes, servers, bodies, 3)
        over.set()
        thread.join(30)
    _check(house, bodies, answers)
    serve_all(runtime, rows)
    check_each_was_served_once(house, bodies)
