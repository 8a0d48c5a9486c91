"""How requests run and end: each way only from the state that allows it, and once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kici_scaler.domain.request import RequestState
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import request_ends, settings
from kici_scaler.store.events import EventType, NewEvent
from tests.support.rows import ENVELOPE, Rows

S, R = SpawnState, RequestState
NOT_OVER = ("waiting", "assigned", "running")
OVER = ("succeeded", "failed", "cancelled", "refused")


def _accept(rows: Rows, job: str, agent: str) -> object:
    return rows.call(request_ends.start_running, job_id=job, agent_id=agent)


def _lifetime(rows: Rows, seconds: float) -> None:
    rows.call(settings.put, "maximum_lifetime_seconds", seconds, changed_by="a test")


def _offered(rows: Rows, **more: Any) -> tuple[str, str]:
    job = rows.request(state="assigned", **more)
    return job, rows.spawn(S.IDLE, job=job)


def test_an_accepted_job_runs_and_its_agent_is_busy_for_a_lifetime(rows: Rows) -> None:
    job, agent = _offered(rows)
    _lifetime(rows, 1000)
    assert _accept(rows, job, agent) == ENVELOPE
    assert rows.get("scale_requests", job)["state"] == "running"
    spawn = rows.get("spawns", agent)
    assert spawn["state"] == "busy"
    assert abs(spawn["due_at"] - spawn["deadline_at"]).total_seconds() < 1
    assert rows.count("spawns", "deadline_at > clock_timestamp() + interval '990 s'") == 1
    assert rows.count("spawns", "deadline_at < clock_timestamp() + interval '1010 s'") == 1


def test_an_agent_that_asks_again_gets_the_payload_again_and_no_longer_life(rows: Rows) -> None:
    job, agent = _offered(rows)
    _accept(rows, job, agent)
    before = rows.get("spawns", agent)
    _lifetime(rows, 9000)
    assert _accept(rows, job, agent) == ENVELOPE
    after = rows.get("spawns", agent)
    assert [before[name] for name in ("busy_at", "deadline_at", "due_at")] == [
        after[name] for name in ("busy_at", "deadline_at", "due_at")
    ]


def test_a_job_without_a_payload_runs_too(rows: Rows) -> None:
    job, agent = _offered(rows, sealed_payload=None)
    assert _accept(rows, job, agent) == {}


@pytest.mark.parametrize("state", [S.RESERVED, S.SPAWNING, S.BOOTING, S.DESTROYING, S.QUARANTINED])
def test_a_job_is_not_committed_to_an_agent_that_is_not_there(
    rows: Rows, state: SpawnState
) -> None:
    job = rows.request(state="assigned")
    agent = rows.spawn(state, job=job)
    assert _accept(rows, job, agent) is None
    assert rows.get("scale_requests", job)["state"] == "assigned"


def test_a_job_is_not_committed_to_another_agent(rows: Rows) -> None:
    job, _ = _offered(rows)
    _, stranger = _offered(rows)
    assert _accept(rows, job, stranger) is None


def test_a_job_that_was_called_off_is_not_started(rows: Rows) -> None:
    job, agent = _offered(rows, cancel_reason="enough")
    assert _accept(rows, job, agent) is None
    assert rows.get("spawns", agent)["state"] == "idle"


def test_a_job_accepted_while_it_is_called_off_runs_exactly_when_the_agent_was_told_so(
    rows: Rows,
) -> None:
    for _ in range(40):
        job, agent = _offered(rows)
        with ThreadPoolExecutor(2) as pool:
            cancelled = pool.submit(rows.call, request_ends.cancel, job_id=job, reason="enough")
            accepted = pool.submit(_accept, rows, job, agent)
            state = cancelled.result()
        row = rows.get("scale_requests", job)
        assert (accepted.result() is not None) == (row["state"] == "running")
        assert state in (R.ASSIGNED, R.RUNNING)


@pytest.mark.parametrize("end", [R.SUCCEEDED, R.FAILED, R.CANCELLED])
def test_a_running_job_ends_with_its_true_result_and_nothing_sealed_is_left(
    rows: Rows, end: RequestState
) -> None:
    _, job = rows.busy()
    assert rows.call(request_ends.finish, job_id=job, state=end, result={"exitCode": 3})
    row = rows.get("scale_requests", job)
    assert (row["state"], row["result"]) == (end, {"exitCode": 3})
    assert (row["sealed_payload"], row["sealed_registry"]) == (None, None)
    assert row["finished_at"] is not None


@pytest.mark.parametrize("state", ["waiting", "assigned", *OVER])
def test_a_result_ends_only_a_running_job(rows: Rows, state: str) -> None:
    job = rows.request(state=state)
    before = rows.get("scale_requests", job)
    assert not rows.call(request_ends.finish, job_id=job, state=R.SUCCEEDED, result={})
    assert rows.get("scale_requests", job) == before


def _report(rows: Rows, agent: str, job: str) -> request_ends.Reported:
    reported: request_ends.Reported = rows.call(
        request_ends.report,
        agent_id=agent,
        job_id=job,
        state=R.SUCCEEDED,
        result={"exitCode": 0},
        event=NewEvent(EventType.REQUEST_FINISHED, agent, job, None, "succeeded"),
    )
    return reported


def test_a_reported_end_is_stored_and_told_of_once(rows: Rows) -> None:
    agent, job = rows.busy()
    first, second = _report(rows, agent, job), _report(rows, agent, job)
    assert (first.is_its_own, first.is_done) == (True, True)
    assert (second.is_its_own, second.is_done) == (True, False)
    row = rows.get("scale_requests", job)
    assert (row["state"], row["result"]) == ("succeeded", {"exitCode": 0})
    (told,) = rows.all("SELECT agent_id, job_id, run_id, detail FROM events")
    assert tuple(told) == (agent, job, row["run_id"], "succeeded")


def test_nobody_reports_the_end_of_anothers_job(rows: Rows) -> None:
    _, job = rows.busy()
    another, _ = rows.busy()
    before = rows.get("scale_requests", job)
    for agent in (another, "unknown"):
        reported = _report(rows, agent, job)
        assert (reported.is_its_own, reported.is_done) == (False, False)
    assert rows.get("scale_requests", job) == before
    assert rows.count("events") == 0


def test_a_result_that_comes_twice_counts_once(rows: Rows) -> None:
    _, job = rows.busy()
    ends = [R.SUCCEEDED, R.FAILED] * 4
    with ThreadPoolExecutor(8) as pool:
        done = list(
            pool.map(
                lambda end: rows.call(
                    request_ends.finish, job_id=job, state=end, result={"end": end.value}
                ),
                ends,
            )
        )
    assert done.count(True) == 1
    row = rows.get("scale_requests", job)
    assert row["result"] == {"end": row["state"]}


def test_a_job_that_nobody_accepted_waits_again_and_says_why(rows: Rows) -> None:
    job = rows.request(state="assigned", routed_scaler="a")
    (bereaved,) = rows.call(request_ends.bereave, [job], cause="it burnt down")
    assert (bereaved.job_id, bereaved.run_id, bereaved.state) == (job, "run", R.WAITING)
    row = rows.get("scale_requests", job)
    assert (row["state"], row["requeues"]) == ("waiting", 1)
    assert (row["wait_code"], row["routed_scaler"]) == ("undecided", None)
    assert "it burnt down" in row["wait_reason"]
    assert row["last_provisioning_error"] == "it burnt down"
    assert (row["sealed_payload"], row["finished_at"]) == (ENVELOPE, None)


def test_a_job_is_requeued_so_many_times_and_then_fails_with_the_cause(rows: Rows) -> None:
    job = rows.request(state="assigned", max_requeues=2)
    for expected in (R.WAITING, R.WAITING, R.FAILED):
        (bereaved,) = rows.call(request_ends.bereave, [job], cause="it burnt down")
        assert bereaved.state is expected
        if expected is R.WAITING:
            rows.set("scale_requests", job, state="assigned")
    row = rows.get("scale_requests", job)
    assert row["result"] == {"status": "error", "error": "it burnt down"}
    assert (row["requeues"], row["sealed_payload"]) == (2, None)
    assert row["finished_at"] is not None


def test_a_job_that_ran_is_never_run_again(rows: Rows) -> None:
    _, job = rows.busy()
    (bereaved,) = rows.call(request_ends.bereave, [job], cause="gone")
    assert bereaved.state is R.FAILED
    row = rows.get("scale_requests", job)
    assert (row["requeues"], row["result"]["error"]) == (0, "gone")
    assert row["last_provisioning_error"] is None


@pytest.mark.parametrize(("state", "error"), [("assigned", "enough"), ("running", "enough; gone")])
def test_a_job_that_was_being_called_off_ends_cancelled(rows: Rows, state: str, error: str) -> None:
    job = rows.request(state=state, cancel_reason="enough")
    (bereaved,) = rows.call(request_ends.bereave, [job], cause="gone")
    assert bereaved.state is R.CANCELLED
    row = rows.get("scale_requests", job)
    assert row["result"] == {"status": "cancelled", "error": error}
    assert row["last_provisioning_error"] is None


@pytest.mark.parametrize("state", ["waiting", *OVER])
def test_a_loss_changes_nothing_of_jobs_that_had_no_agent(rows: Rows, state: str) -> None:
    job = rows.request(state=state)
    before = rows.get("scale_requests", job)
    assert rows.call(request_ends.bereave, [job], cause="gone") == []
    assert rows.get("scale_requests", job) == before


def test_many_are_bereaved_at_once_each_in_its_own_way(rows: Rows) -> None:
    waits, fails = rows.request(state="assigned"), rows.request(state="running")
    calls_off = rows.request(state="running", cancel_reason="enough")
    found = rows.call(request_ends.bereave, [fails, waits, calls_off], cause="gone")
    assert {each.job_id: each.state for each in found} == {
        waits: R.WAITING,
        fails: R.FAILED,
        calls_off: R.CANCELLED,
    }


def test_a_release_counts_no_requeue(rows: Rows) -> None:
    job = rows.request(state="assigned", routed_scaler="a")
    running = rows.request(state="running")
    called_off = rows.request(state="assigned", cancel_reason="enough")
    released = rows.call(request_ends.release, [job, running, called_off], why="the machine left")
    assert released == [job]
    row = rows.get("scale_requests", job)
    assert (row["state"], row["requeues"], row["routed_scaler"]) == ("waiting", 0, None)
    assert row["wait_reason"] == "the machine left"


@pytest.mark.parametrize("state", list(S))
def test_the_spawn_of_a_job_is_its_live_one(rows: Rows, state: SpawnState) -> None:
    job = rows.request(state="running")
    agent = rows.spawn(state, job=job)
    is_live = state not in (S.DESTROYING, S.QUARANTINED)
    assert rows.call(request_ends.spawn_of, job) == (agent if is_live else None)


def test_a_waiting_job_that_is_called_off_ends_at_once(rows: Rows) -> None:
    job = rows.request(sealed_registry="{}")
    assert rows.call(request_ends.cancel, job_id=job, reason="enough") is R.CANCELLED
    row = rows.get("scale_requests", job)
    assert (row["cancel_reason"], row["result"]["status"]) == ("enough", "cancelled")
    assert (row["sealed_payload"], row["sealed_registry"]) == (None, None)
    assert row["finished_at"] is not None


@pytest.mark.parametrize("state", ["assigned", "running"])
def test_a_job_with_an_agent_is_marked_and_the_first_reason_stands(rows: Rows, state: str) -> None:
    job = rows.request(state=state)
    assert rows.call(request_ends.cancel, job_id=job, reason="first") is R(state)
    assert rows.call(request_ends.cancel, job_id=job, reason="second") is R(state)
    row = rows.get("scale_requests", job)
    assert (row["cancel_reason"], row["sealed_payload"]) == ("first", ENVELOPE)
    assert row["finished_at"] is None


@pytest.mark.parametrize("state", OVER)
def test_what_is_over_stays_as_it_is(rows: Rows, state: str) -> None:
    job = rows.request(state=state)
    before = rows.get("scale_requests", job)
    assert rows.call(request_ends.cancel, job_id=job, reason="late") is R(state)
    assert rows.get("scale_requests", job) == before


def test_a_cancel_that_comes_first_leaves_a_tombstone(rows: Rows) -> None:
    assert rows.call(request_ends.cancel, job_id="early", reason="enough") is R.CANCELLED
    row = rows.get("scale_requests", "early")
    assert (row["digest"], row["cancel_reason"]) == ("", "enough")


@pytest.mark.parametrize("state", OVER)
def test_requests_past_their_retention_are_forgotten_unless_a_row_names_them(
    rows: Rows, state: str
) -> None:
    old, young, named = (rows.request(state=state) for _ in range(3))
    for job in (old, named):
        rows.shift("scale_requests", job, finished_at=-100.0)
    rows.spawn(S.DESTROYING, job=named)
    for unfinished in NOT_OVER:
        rows.shift("scale_requests", rows.request(state=unfinished), enqueued_at=-9_999.0)
    assert rows.call(request_ends.purge, older_seconds=50) == 1
    left = {row[0] for row in rows.all("SELECT job_id FROM scale_requests")}
    assert old not in left
    assert {young, named} <= left
