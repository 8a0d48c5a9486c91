"""A job called off in every state, before it came and while it is being decided or accepted."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection

from kici_scaler.domain.request import RequestState, Result
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import admit, finish, request
from kici_scaler.service.answers import Answer
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import agents, request_ends, start_takes
from tests.integration.service import work
from tests.integration.service.work import Servers
from tests.support.admissions import History
from tests.support.rows import Rows
from tests.support.waiting import eventually

R, S = RequestState, SpawnState


def _submit(runtime: Runtime, job: str, *labels: str, **more: Any) -> Answer:
    (answer,) = work.until_answered(runtime, [work.body(job, *(labels or ("roomy",)), **more)])
    return answer


@pytest.mark.usefixtures("one_place")
def test_a_job_called_off_before_it_came_never_gets_an_agent(runtime: Runtime, rows: Rows) -> None:
    assert request.cancel(runtime, "job", reason="enough") is R.CANCELLED
    answer = _submit(runtime, "job")
    assert (answer.result, answer.state, answer.reason) == (Result.SKIPPED, R.CANCELLED, "enough")
    assert rows.count("spawns") == 0


@pytest.mark.usefixtures("one_place")
def test_a_waiting_job_is_over_at_once(runtime: Runtime, rows: Rows) -> None:
    _submit(runtime, "first", "linux")
    assert _submit(runtime, "second", "linux").result is Result.AT_CAPACITY
    assert request.cancel(runtime, "second") is R.CANCELLED
    assert rows.count("spawns") == 1


@pytest.mark.usefixtures("one_place")
def test_a_reservation_is_given_back_with_its_place(runtime: Runtime, rows: Rows) -> None:
    _submit(runtime, "first", "linux")
    _submit(runtime, "second", "linux")
    assert request.cancel(runtime, "first") is R.CANCELLED
    admit.run_pass(runtime)
    assert rows.get("scale_requests", "second")["state"] == "assigned"


@pytest.mark.parametrize("state", [S.SPAWNING, S.BOOTING, S.IDLE])
def test_compute_that_exists_is_torn_down_and_its_job_is_cancelled(
    runtime: Runtime, rows: Rows, state: SpawnState
) -> None:
    job = rows.request(state="assigned")
    agent = rows.spawn(state, job=job)
    assert request.cancel(runtime, job, reason="enough") is R.CANCELLED
    spawn = rows.get("spawns", agent)
    assert (spawn["state"], spawn["destroy_reason"]) == ("destroying", "shutdown")
    assert rows.get("scale_requests", job)["result"]["error"] == "enough"
    assert rows.count("outcomes") == 1
    assert rows.count("scaler_states", "failure_streak > 0") == 0


def test_a_running_job_is_told_and_ends_with_its_result(runtime: Runtime, rows: Rows) -> None:
    agent, job = rows.busy()
    assert request.cancel(runtime, job) is R.RUNNING
    assert rows.get("spawns", agent)["state"] == "busy"
    assert finish.finish(
        runtime, agent_id=agent, job_id=job, result={"status": "cancelled", "signal": 15}
    )
    assert rows.get("scale_requests", job)["state"] == "cancelled"


def test_calling_off_what_is_over_changes_nothing(runtime: Runtime, rows: Rows) -> None:
    job = rows.request(state="succeeded")
    assert request.cancel(runtime, job) is R.SUCCEEDED


@pytest.mark.usefixtures("one_place")
def test_two_call_off_a_job_in_the_moment_it_is_assigned(
    runtime: Runtime, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first found no agent, then that there is one: it must let go before it looks again."""
    rows.request("job", labels=["roomy"])
    admit.run_pass(runtime)
    look, mark = request_ends.spawn_of, request_ends.cancel
    looked, marked, arrived = threading.Lock(), threading.Lock(), threading.Event()

    def look_too_early(connection: Connection, job: str) -> str | None:
        return None if looked.acquire(blocking=False) else look(connection, job)

    def mark_and_wait(connection: Connection, **more: Any) -> RequestState:
        state = mark(connection, **more)
        if marked.acquire(blocking=False):
            arrived.set()
            rows.wait_until_blocked()
        return state

    monkeypatch.setattr(request_ends, "spawn_of", look_too_early)
    monkeypatch.setattr(request_ends, "cancel", mark_and_wait)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(request.cancel, runtime, "job")
        assert arrived.wait(10)
        second = pool.submit(request.cancel, runtime, "job")
        assert {first.result(20), second.result(20)} == {R.CANCELLED}
    assert rows.count("spawns") == 0


def _deadlocks(rows: Rows) -> int:
    return int(
        rows.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    )


def _connect(runtime: Runtime, rows: Rows) -> list[tuple[str, str]]:
    """Whatever is reserved becomes idle, as if its agent had registered."""
    with rows.begin() as connection:
        taken = start_takes.take(
            connection, kind="bare-metal", machine_id="m1", holder=runtime.owner, most=9
        ).rows
        for each in taken:
            agents.connect_spawn(
                connection, agent_id=each.agent_id, adopter="gw-1", offer_seconds=30
            )
    return [(each.agent_id, each.job_id) for each in taken if each.job_id]


def _race(runtime: Runtime, rows: Rows, job: str, seed: int) -> list[str]:
    """Everything that may happen to a job, at once; who was told that it runs."""
    running: list[str] = []

    def accept() -> None:
        for agent, its_job in _connect(runtime, rows):
            if finish.accept(runtime, agent_id=agent, job_id=its_job) is not None:
                running.append(agent)

    acts: list[Callable[[], Any]] = [
        lambda: _submit(runtime, job),
        lambda: _submit(runtime, job),
        lambda: request.cancel(runtime, job),
        lambda: request.cancel(runtime, job),
        lambda: work.run_pass(runtime),
        accept,
        accept,
    ]
    random.Random(seed).shuffle(acts)
    gate = threading.Barrier(len(acts))

    def start(act: Callable[[], Any]) -> None:
        gate.wait(20)
        act()

    with ThreadPoolExecutor(len(acts)) as pool:
        for done in [pool.submit(start, act) for act in acts]:
            done.result(60)
    return running


def _check(rows: Rows, job: str, running: list[str]) -> None:
    state = rows.get("scale_requests", job)["state"]
    live = rows.all(
        "SELECT agent_id, state FROM spawns"
        " WHERE job_id = :job AND state NOT IN ('destroying', 'quarantined')",
        job=job,
    )
    assert state in ("cancelled", "running"), state
    assert len(running) <= 1
    assert [row.agent_id for row in live] == (running if state == "running" else [])
    assert (state == "running") == bool(running)


def _rounds(runtime: Runtime, rows: Rows, history: History, rounds: int) -> None:
    before = _deadlocks(rows)
    for number in range(rounds):
        job = f"job-{number}"
        running = _race(runtime, rows, job, number)
        _check(rows, job, running)
        rows.execute("DELETE FROM spawns")
    assert history.violations() == []
    rows.execute("SELECT pg_stat_force_next_flush()")
    eventually(lambda: rows.one("SELECT pg_stat_clear_snapshot() IS NOT NULL"))
    assert _deadlocks(rows) == before


def test_whoever_comes_first_a_job_is_cancelled_or_runs_on_one_agent(
    runtime: Runtime, rows: Rows, one_place: History
) -> None:
    rows.gateway()
    _rounds(runtime, rows, one_place, 40)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_whoever_comes_first_in_hundreds_of_rounds(
    runtime: Runtime, rows: Rows, one_place: History
) -> None:
    rows.gateway()
    _rounds(runtime, rows, one_place, 1_000)


@pytest.mark.usefixtures("one_place")
def test_jobs_called_off_from_many_processes_while_they_are_submitted_leave_nothing(
    processes: ProcessPoolExecutor, servers: Servers, runtime: Runtime, rows: Rows
) -> None:
    jobs = [f"job-{number}" for number in range(60)]
    bodies = [work.body(job, "roomy") for job in jobs]
    running = [processes.submit(work.submit, servers, bodies, seed=n) for n in range(4)]
    calling = [processes.submit(work.cancel, servers, jobs[::step]) for step in (1, -1, 1)]
    for submitted in running:
        submitted.result(120)
    for called_off in calling:
        called_off.result(120)
    for job in jobs:
        request.cancel(runtime, job)
    assert rows.count("spawns") == 0
    assert rows.count("scale_requests", "state <> 'cancelled'") == 0
