"""Scale requests: stored once, found with what stands for them, locked for a decision."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kici_scaler.domain.request import RequestState, WaitCode
from kici_scaler.domain.scalers import Amount, Role
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import requests
from kici_scaler.store import waiting as waiting_rows
from kici_scaler.store.requests import Standing
from tests.support.rows import ENVELOPE, Rows, new_request

S = SpawnState


def test_what_was_asked_is_what_a_decision_sees(rows: Rows) -> None:
    request = new_request(
        "job",
        labels=("linux", "gpu"),
        exclude=("slow",),
        org="acme",
        role="builder",
        request_cpu_millis=1500,
        request_memory_bytes=2**40,
        limit_cpu_millis=2000,
        limit_memory_bytes=2**41,
        image="alpine:3",
        priority=-7,
        may_wait=False,
        max_requeues=4,
        sealed_registry=dict(ENVELOPE),
    )
    assert rows.call(requests.insert, [request]) == {"job"}
    (waiting,) = rows.call(
        waiting_rows.lock_heads, job_ids=["job"], scalers=[], per_queue=9, most=9
    )
    assert (waiting.labels, waiting.exclude) == ({"linux", "gpu"}, {"slow"})
    assert (waiting.org, waiting.role, waiting.image) == ("acme", Role.BUILDER, "alpine:3")
    assert waiting.declared.requests == Amount(1500, 2**40)
    assert waiting.declared.limits == Amount(2000, 2**41)
    assert (waiting.priority, waiting.may_wait) == (-7, False)
    assert (waiting.wait_code, waiting.routed_scaler) == (WaitCode.UNDECIDED, None)
    row = rows.get("scale_requests", "job")
    assert (row["sealed_payload"], row["sealed_registry"]) == (ENVELOPE, ENVELOPE)
    assert row["max_requeues"] == 4


def test_what_is_left_out_stays_out(rows: Rows) -> None:
    rows.call(requests.insert, [new_request("job", sealed_payload=None)])
    row = rows.get("scale_requests", "job")
    assert (row["sealed_payload"], row["sealed_registry"], row["role"]) == (None, None, None)


def test_a_job_is_stored_once_and_the_first_stands(rows: Rows) -> None:
    assert rows.call(requests.insert, [new_request("job", priority=1)]) == {"job"}
    assert rows.call(requests.insert, [new_request("job", priority=2), new_request("new")]) == {
        "new"
    }
    assert rows.get("scale_requests", "job")["priority"] == 1


def test_a_job_twice_in_one_batch_is_stored_once(rows: Rows) -> None:
    assert rows.call(requests.insert, [new_request("job"), new_request("job")]) == {"job"}


def test_nothing_to_store_is_nothing(rows: Rows) -> None:
    assert rows.call(requests.insert, []) == frozenset()


def test_a_batch_is_queued_in_the_order_given(rows: Rows) -> None:
    names = ["z", "a", "m", "b"]
    rows.call(requests.insert, [new_request(name) for name in names])
    found = rows.call(waiting_rows.lock_heads, job_ids=names, scalers=[], per_queue=0, most=1)
    assert [each.job_id for each in found] == names


def test_a_thousand_racing_for_the_same_jobs_store_each_once(rows: Rows) -> None:
    names = [f"job-{number}" for number in range(50)]
    with ThreadPoolExecutor(20) as pool:
        stored = list(
            pool.map(lambda name: rows.call(requests.insert, [new_request(name)]), [*names] * 20)
        )
    assert sum(len(each) for each in stored) == len(names)


@pytest.mark.parametrize("state", [S.RESERVED, S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY])
def test_a_request_is_found_with_the_spawn_that_stands_for_it(
    rows: Rows, state: SpawnState
) -> None:
    job = rows.request(state="running")
    agent = rows.spawn(state, job=job)
    found = rows.call(requests.find, [job, "unknown"])
    assert set(found) == {job}
    assert (found[job].agent_id, found[job].spawn_state) == (agent, state)
    assert (found[job].scaler, found[job].backend_type) == ("local", "bare-metal")
    assert (found[job].machine_id, found[job].owner) == ("m1", "owner")
    assert found[job].revision_id is not None
    assert found[job].state is RequestState.RUNNING


@pytest.mark.parametrize("state", [S.DESTROYING, S.QUARANTINED])
def test_a_spawn_that_ends_stands_for_nobody(rows: Rows, state: SpawnState) -> None:
    job = rows.request()
    rows.spawn(state, job=job)
    assert rows.call(requests.find, [job])[job].agent_id is None


def test_recent_requests_are_those_not_over_the_oldest_first(rows: Rows) -> None:
    old, new, over = rows.request(), rows.request(), rows.request(state="failed")
    rows.shift("scale_requests", old, enqueued_at=-60.0)
    assert [each.job_id for each in rows.call(requests.recent)] == [old, new]
    assert [each.job_id for each in rows.call(requests.recent, states=["failed"])] == [over]
    assert [each.job_id for each in rows.call(requests.recent, limit=1)] == [old]


def test_of_those_in_a_state_the_newest_end_comes_first(rows: Rows) -> None:
    first, second = rows.request(state="failed"), rows.request(state="failed")
    rows.shift("scale_requests", first, finished_at=-60.0)
    found = rows.call(requests.recent, states=["failed", "waiting"])
    assert [each.job_id for each in found] == [second, first]


def test_a_reason_stands_on_the_request_and_is_found(rows: Rows) -> None:
    job = rows.request()
    rows.call(requests.record_reasons, [Standing(job, WaitCode.AT_CAPACITY, 'it\'s "full" ü', "a")])
    found = rows.call(requests.find, [job])[job]
    assert found.state is RequestState.WAITING
    assert (found.wait_code, found.wait_reason) == (WaitCode.AT_CAPACITY, 'it\'s "full" ü')
    assert (found.routed_scaler, found.finished_at) == ("a", None)
    assert found.decided_at is not None
    assert rows.get("scale_requests", job)["sealed_payload"] == ENVELOPE


def test_who_would_not_wait_ends_refused_and_erased(rows: Rows) -> None:
    job = rows.request(sealed_registry="{}")
    rows.call(
        requests.record_reasons, [Standing(job, WaitCode.AT_CAPACITY, "full", "a", over=True)]
    )
    row = rows.get("scale_requests", job)
    assert row["state"] == "refused"
    assert (row["sealed_payload"], row["sealed_registry"]) == (None, None)
    assert row["finished_at"] is not None


def test_a_reason_changes_nothing_of_what_waits_no_longer(rows: Rows) -> None:
    job = rows.request(state="assigned")
    rows.call(requests.record_reasons, [Standing(job, WaitCode.PAUSED, "no", "a", over=True)])
    row = rows.get("scale_requests", job)
    assert (row["state"], row["wait_reason"], row["finished_at"]) == ("assigned", "", None)


def test_whether_any_waits(rows: Rows) -> None:
    assert not rows.call(requests.any_waiting)
    rows.request(state="assigned")
    assert not rows.call(requests.any_waiting)
    rows.request()
    assert rows.call(requests.any_waiting)
