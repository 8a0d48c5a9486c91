"""Counters are exact whoever counts and folds, and the time of a start is taken once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.metrics import declared
from kici_scaler.store import counts, request_ends
from kici_scaler.store.counts import Count
from tests.support.rows import Rows

S = SpawnState
FAILURES = declared.SPAWN_FAILURES


def _counters(rows: Rows) -> Mapping[tuple[str, tuple[str, ...]], float]:
    return {(each.name, each.labels): each.n for each in rows.call(counts.read)}


def _count(rows: Rows, *labels: str, n: float = 1) -> None:
    rows.call(counts.add, [Count(FAILURES, labels, n)])


def test_counts_add_up_by_name_and_labels(rows: Rows) -> None:
    several = [Count(FAILURES, ("container", "true")), Count(FAILURES, ("container", "true"), 2)]
    rows.call(counts.add, [*several, Count(declared.LEASES_EXPIRED, ("event", "start"))])
    _count(rows, "container", "true")
    _count(rows, "container", "false")
    assert _counters(rows) == {
        (FAILURES.name, ("container", "true")): 4,
        (FAILURES.name, ("container", "false")): 1,
        (declared.LEASES_EXPIRED.name, ("event", "start")): 1,
    }


def test_nothing_to_count_writes_nothing(rows: Rows) -> None:
    rows.call(counts.add, [])
    assert rows.count("metric_counts") == 0


def test_what_is_rolled_back_was_not_counted(rows: Rows) -> None:
    connection = rows.engine.connect()
    with connection, connection.begin() as transaction:
        counts.add(connection, [Count(FAILURES, ("container", "true"))])
        transaction.rollback()
    assert _counters(rows) == {}


def test_folding_leaves_one_row_each_and_changes_no_count(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "MOST_UNFOLDED", 3)
    for number in range(12):
        _count(rows, "container", str(number % 2 == 0).lower())
    before = _counters(rows)
    rows.call(counts.fold)
    assert rows.count("metric_counts") == 2
    assert _counters(rows) == before


def test_counting_and_reading_go_on_while_counts_are_folded(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader ever sees fewer than were counted before it looked, or more than after."""
    monkeypatch.setattr(counts, "MOST_UNFOLDED", 0)
    stop = threading.Event()
    done = [0]

    def fold() -> None:
        while not stop.is_set():
            rows.call(counts.fold)

    with ThreadPoolExecutor(1) as pool:
        folding = pool.submit(fold)
        try:
            for number in range(60):
                _count(rows, "container", "true")
                done[0] = number + 1
                assert _counters(rows) == {(FAILURES.name, ("container", "true")): done[0]}
        finally:
            stop.set()
        folding.result()
    assert _counters(rows) == {(FAILURES.name, ("container", "true")): 60}


def _started(rows: Rows, *, warm: bool = False, twice: bool = False) -> None:
    job = rows.request(state="assigned")
    agent = rows.spawn(S.IDLE, job=job, warm=warm)
    for _ in range(2 if twice else 1):
        assert rows.call(request_ends.start_running, job_id=job, agent_id=agent) is not None


def _histogram(rows: Rows) -> dict[tuple[str, ...], dict[float | None, float]]:
    found: dict[tuple[str, ...], dict[float | None, float]] = {}
    for each in rows.call(counts.read):
        assert each.name == declared.START_SECONDS.name
        found.setdefault(each.labels, {})[each.le] = each.n
    return found


def _observed(histogram: dict[float | None, float]) -> float:
    return sum(n for le, n in histogram.items() if le is not None)


def test_every_step_of_a_start_is_timed_once_however_often_the_agent_accepts(rows: Rows) -> None:
    _started(rows, twice=True)
    found = _histogram(rows)
    steps = ("reserved", "spawned", "registered", "started", "all")
    assert set(found) == {("local", "cold", step) for step in steps}
    assert all(_observed(each) == 1 for each in found.values())


def test_of_an_agent_that_was_ready_only_the_whole_is_timed(rows: Rows) -> None:
    _started(rows, warm=True)
    assert set(_histogram(rows)) == {("local", "warm", "all")}


def test_times_fall_into_the_bucket_that_holds_them(rows: Rows) -> None:
    rows.execute(
        "INSERT INTO start_timings (scaler, warm, requested_at, reserved_at, registered_at,"
        " started_at) SELECT 's', false, now, now + interval '250 ms', now + interval '3 s',"
        " now + interval '2 h' FROM clock_timestamp() AS now"
    )
    found = _histogram(rows)
    assert found["s", "cold", "reserved"] == {0.25: 1, None: pytest.approx(0.25)}
    assert found["s", "cold", "spawned"] == {5: 1, None: pytest.approx(2.75)}
    assert found["s", "cold", "registered"] == {0.05: 1, None: 0}
    assert found["s", "cold", "all"] == {inf: 1, None: pytest.approx(7200)}


def test_times_are_the_same_before_and_after_they_are_folded(rows: Rows) -> None:
    for _ in range(3):
        _started(rows)
    before = _histogram(rows)
    rows.call(counts.fold)
    assert rows.count("start_timings") == 0
    _started(rows)
    after = _histogram(rows)
    for labels, each in before.items():
        assert _observed(each) == 3
        assert _observed(after[labels]) == 4
