"""What a decision works on: the urgent first, a fair share of each queue, never too much."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kici_scaler.store import waiting
from tests.support.rows import Rows


def _lock(
    rows: Rows, *, jobs: Any = (), scalers: Any = (), per_queue: int = 500, most: int = 500
) -> list[str]:
    found = rows.call(
        waiting.lock_heads,
        job_ids=list(jobs),
        scalers=list(scalers),
        per_queue=per_queue,
        most=most,
    )
    return [each.job_id for each in found]


def _some(rows: Rows, scalers: list[str], *, most: int, per_queue: int = 500) -> list[str]:
    found = rows.call(waiting.lock_some, scalers=scalers, per_queue=per_queue, most=most)
    return [each.job_id for each in found]


def test_the_most_urgent_is_decided_first_and_the_oldest_among_equals(rows: Rows) -> None:
    young, old, urgent = rows.request("a"), rows.request("b"), rows.request("c", priority=1)
    rows.shift("scale_requests", old, enqueued_at=-60.0)
    rows.shift("scale_requests", young, enqueued_at=-50.0)
    assert _lock(rows) == [urgent, old, young]


def test_undecided_ones_are_always_among_those_to_decide(rows: Rows) -> None:
    undecided, behind_b = rows.request(), rows.request(routed_scaler="b")
    assert _lock(rows, scalers=["a"]) == [undecided]
    assert set(_lock(rows, scalers=["b"])) == {undecided, behind_b}


def test_a_long_queue_of_one_scaler_never_hides_the_requests_of_another(rows: Rows) -> None:
    for number in range(30):
        rows.request(f"a-{number:02}", routed_scaler="a", priority=9)
        rows.request(f"nowhere-{number:02}", routed_scaler="", priority=9)
    for number in range(3):
        rows.request(f"b-{number}", routed_scaler="b")
    found = _lock(rows, scalers=["", "a", "b"], per_queue=5)
    assert len([job for job in found if job.startswith("a-")]) == 5
    assert len([job for job in found if job.startswith("nowhere-")]) == 5
    assert [job for job in found if job.startswith("b-")] == ["b-0", "b-1", "b-2"]


def test_the_head_of_a_queue_is_its_most_urgent_part(rows: Rows) -> None:
    for number in range(6):
        rows.request(f"job-{number}", routed_scaler="a", priority=number)
    assert _lock(rows, scalers=["a"], per_queue=2) == ["job-5", "job-4"]


def test_given_jobs_are_decided_even_from_far_behind(rows: Rows) -> None:
    for number in range(6):
        rows.request(f"job-{number}", routed_scaler="a", priority=-number)
    assert set(_lock(rows, jobs=["job-5"], scalers=["a"], per_queue=1)) == {"job-0", "job-5"}


@pytest.mark.parametrize("state", ["assigned", "running", "succeeded", "cancelled", "refused"])
def test_only_waiting_ones_are_decided(rows: Rows, state: str) -> None:
    job = rows.request(state=state)
    assert _lock(rows, jobs=[job], scalers=["", "a"]) == []


def test_what_another_holds_is_skipped_and_not_waited_for(rows: Rows) -> None:
    mine, theirs = rows.request(), rows.request()
    with rows.begin() as connection:
        waiting.lock_heads(connection, job_ids=[theirs], scalers=[], per_queue=0, most=1)
        assert _lock(rows, jobs=[mine, theirs]) == [mine]


def test_where_all_is_too_much_each_queue_gives_the_same(rows: Rows) -> None:
    for number in range(20):
        rows.request(f"a-{number:02}", routed_scaler="a", priority=9)
        rows.request(f"b-{number:02}", routed_scaler="b")
    rows.request("c-00", routed_scaler="c")
    found = _lock(rows, scalers=["a", "b", "c"], most=7)
    assert Counter(job.split("-")[0] for job in found) == {"a": 3, "b": 3, "c": 1}
    assert {"a-00", "a-01", "a-02", "b-00", "b-01", "b-02", "c-00"} <= set(found)


def test_long_queues_leave_the_undecided_their_share(rows: Rows) -> None:
    for number in range(9):
        rows.request(f"a-{number}", routed_scaler="a", priority=9)
        rows.request(f"new-{number}")
    found = _lock(rows, scalers=["a"], per_queue=5, most=2)
    assert Counter(job.split("-")[0] for job in found) == {"a": 2, "new": 5}


def test_of_more_queues_than_fit_none_is_left_out_for_ever(rows: Rows) -> None:
    names = [f"s{number}" for number in range(8)]
    for name in names:
        rows.request(name, routed_scaler=name)
    seen: set[str] = set()
    for _ in range(100):
        found = _lock(rows, scalers=names, most=3)
        assert len(found) == 3
        seen.update(found)
    assert seen == set(names)


def test_jobs_that_are_named_come_on_top_of_what_is_bounded(rows: Rows) -> None:
    for number in range(6):
        rows.request(f"job-{number}", routed_scaler="a", priority=-number)
    assert _lock(rows, jobs=["job-4", "job-5"], scalers=["a"], most=1) == [
        "job-0",
        "job-4",
        "job-5",
    ]


def test_those_from_anywhere_are_bounded_and_taken_from_each_queue(rows: Rows) -> None:
    for number in range(20):
        rows.request(f"a-{number:02}", routed_scaler="a")
        rows.request(f"b-{number:02}", routed_scaler="b")
    found = _some(rows, ["a", "b"], most=8)
    assert Counter(job.split("-")[0] for job in found) == {"a": 4, "b": 4}
    seen: set[str] = set()
    for _ in range(100):
        seen.update(_some(rows, ["a", "b"], most=8))
    assert len(seen) == 40
    assert len(_some(rows, ["a", "b"], per_queue=2, most=8)) == 4
