"""Jobs of agents that no scaler made: given once, judged with doubt, freed for the next."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from kici_scaler.service import admit, finish, request, retention, sweep
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import static_agents
from tests.integration.service import work
from tests.support.rows import Rows

pytestmark = pytest.mark.usefixtures("one_place")

AWAY = "UPDATE agents SET unseen_since = clock_timestamp() - interval '9999 s' WHERE agent_id = :a"


@pytest.fixture(autouse=True)
def _watched(runtime: Runtime, rows: Rows) -> None:
    """A gateway, and a sweep that has watched for a while."""
    rows.gateway()
    _sweep(runtime, rows)


def _sweep(runtime: Runtime, rows: Rows, *, gap: float = 1.0) -> int:
    rows.execute(
        "UPDATE duties SET ticked_at = clock_timestamp() - make_interval(secs => :gap)", gap=gap
    )
    rows.execute("UPDATE scale_requests SET static_due_at = now() WHERE static_agent IS NOT NULL")
    return sweep.sweep(runtime).looked_at


def _ask(runtime: Runtime, *jobs: str) -> None:
    request.submit(runtime, [parse_request(work.body(job, "own")) for job in jobs])


def _busy(runtime: Runtime, rows: Rows, number: int) -> tuple[str, str]:
    """A static agent with the job that it runs."""
    agent, job = f"static-{number}", f"job-{number}"
    rows.agent(agent, spawn_id=None, labels=["own"])
    _ask(runtime, job)
    assert finish.accept(runtime, agent_id=agent, job_id=job) is not None
    return agent, job


def _state(rows: Rows, job: str) -> str:
    return str(rows.get("scale_requests", job)["state"])


def test_many_passes_give_each_job_to_one_agent_and_each_agent_one_job(
    runtime: Runtime, rows: Rows
) -> None:
    agents = [f"static-{number}" for number in range(20)]
    jobs = [f"job-{number}" for number in range(60)]
    for agent in agents:
        rows.agent(agent, spawn_id=None, labels=["own"])

    def work_off(agent: str) -> list[str]:
        done = []
        for _ in range(100):
            if not rows.count("scale_requests", "state <> 'succeeded'"):
                break
            admit.run_pass(runtime)
            for row in rows.all(
                "SELECT job_id FROM scale_requests WHERE static_agent = :a", a=agent
            ):
                assert finish.accept(runtime, agent_id=agent, job_id=row.job_id) is not None
                result = {"status": "succeeded", "exitCode": 0}
                assert finish.finish(runtime, agent_id=agent, job_id=row.job_id, result=result)
                done.append(row.job_id)
        return done

    _ask(runtime, *jobs)
    with ThreadPoolExecutor(8) as pool:
        done = [job for each in pool.map(work_off, agents) for job in each]
    assert sorted(done) == sorted(jobs)
    assert rows.count("scale_requests", "state = 'succeeded'") == len(jobs)
    assert rows.count("spawns") == 0


def test_an_absence_that_lasted_fails_the_job_and_frees_the_agent(
    runtime: Runtime, rows: Rows
) -> None:
    agent, job = _busy(runtime, rows, 1)
    assert _sweep(runtime, rows) == 1
    assert _state(rows, job) == "running"
    rows.execute(AWAY, a=agent)
    _sweep(runtime, rows)
    row = rows.get("scale_requests", job)
    assert (row["state"], row["static_agent"]) == ("failed", None)
    assert "was not seen for 9999 s" in row["result"]["error"]


def test_a_lifetime_that_is_over_fails_the_job_of_a_connected_agent(
    runtime: Runtime, rows: Rows
) -> None:
    agent, job = _busy(runtime, rows, 1)
    rows.execute("UPDATE scale_requests SET static_deadline_at = now() - interval '1 s'")
    _sweep(runtime, rows)
    assert _state(rows, job) == "failed"
    assert rows.get("agents", agent)["stopping"] == job
    _ask(runtime, "next")
    assert _state(rows, "next") == "waiting", "it still works on the other"
    finish.finish(runtime, agent_id=agent, job_id=job, result={"status": "cancelled"})
    rows.execute("UPDATE agents SET resting_until = NULL")
    admit.run_pass(runtime)
    assert rows.get("scale_requests", "next")["static_agent"] == agent
    assert _state(rows, job) == "failed"


def test_one_that_ignores_a_cancellation_loses_the_job_and_is_offered_nothing(
    runtime: Runtime, rows: Rows
) -> None:
    agent, job = _busy(runtime, rows, 1)
    request.cancel(runtime, job, reason="enough")
    soon = "static_deadline_at - clock_timestamp() BETWEEN interval '30 s' AND interval '60 s'"
    assert rows.count("scale_requests", soon) == 1
    _sweep(runtime, rows)
    assert _state(rows, job) == "running"
    rows.execute("UPDATE scale_requests SET static_deadline_at = now() - interval '1 s'")
    _sweep(runtime, rows)
    assert _state(rows, job) == "cancelled"
    assert "did not stop it in time" in rows.get("scale_requests", job)["result"]["error"]
    row = rows.get("agents", agent)
    assert (row["stopping"], row["stopping_until"] is None) == (job, False)
    assert rows.call(static_agents.not_stopping) == []
    rows.shift("agents", agent, stopping_until=-1.0)
    assert rows.call(static_agents.not_stopping) == [agent]


def test_a_time_that_nobody_watched_moves_the_deadlines(runtime: Runtime, rows: Rows) -> None:
    agent, job = _busy(runtime, rows, 1)
    rows.execute(AWAY, a=agent)
    rows.execute("UPDATE scale_requests SET static_deadline_at = now() + interval '10 s'")
    rows.execute("UPDATE observation SET watched_at = watched_at - interval '600 s'")
    _sweep(runtime, rows, gap=600)
    assert _state(rows, job) == "running"
    moved = "static_deadline_at > clock_timestamp() + interval '500 s'"
    assert rows.count("scale_requests", moved) == 1


def test_many_absences_at_once_point_at_the_observer(runtime: Runtime, rows: Rows) -> None:
    for number in range(12):
        agent, _ = _busy(runtime, rows, number)
        rows.execute(AWAY, a=agent)
    _sweep(runtime, rows)
    assert rows.count("scale_requests", "state = 'running'") == 12


@contextmanager
def _poisoned(rows: Rows, job: str) -> Iterator[None]:
    """The request of that job cannot be failed."""
    rows.execute(
        f"""
        CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.job_id = '{job}' AND NEW.state = 'failed' THEN
                RAISE EXCEPTION 'poisoned';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER poison BEFORE UPDATE ON scale_requests
        FOR EACH ROW EXECUTE FUNCTION poison()
        """
    )
    try:
        yield
    finally:
        rows.execute("DROP TRIGGER poison ON scale_requests; DROP FUNCTION poison()")


def test_a_job_that_cannot_be_ended_stops_no_other(runtime: Runtime, rows: Rows) -> None:
    jobs = []
    for number in range(4):
        agent, job = _busy(runtime, rows, number)
        rows.execute(AWAY, a=agent)
        jobs.append(job)
    with _poisoned(rows, jobs[0]):
        _sweep(runtime, rows)
    assert [_state(rows, job) for job in jobs] == ["running", "failed", "failed", "failed"]


def test_one_that_stayed_away_is_forgotten_unless_it_has_a_job(
    runtime: Runtime, rows: Rows
) -> None:
    busy, _ = _busy(runtime, rows, 1)
    for agent in ("static-2", "static-3"):
        rows.agent(agent, spawn_id=None, labels=["own"])
    for agent in (busy, "static-2"):
        rows.execute(AWAY, a=agent)
    retention.forget(runtime)
    left = [row.agent_id for row in rows.all("SELECT agent_id FROM agents ORDER BY 1")]
    assert left == [busy, "static-3"]


def test_requeues_of_a_job_that_nobody_accepts_have_an_end_with_the_cause(
    runtime: Runtime, rows: Rows
) -> None:
    rows.agent("static-1", spawn_id=None, labels=["own"])
    _ask(runtime, "job")
    for _ in range(3):
        assert rows.get("scale_requests", "job")["static_agent"] == "static-1"
        finish.decline(runtime, agent_id="static-1", job_id="job", reason="busy")
        rows.execute("UPDATE agents SET resting_until = NULL")
        admit.run_pass(runtime)
    row = rows.get("scale_requests", "job")
    assert (row["state"], row["requeues"]) == ("failed", 2)
    assert "declined" in row["last_provisioning_error"]
