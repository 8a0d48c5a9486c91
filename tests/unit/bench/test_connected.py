"""What is made of the moments and counts of a run with many agents."""

from __future__ import annotations

from bench.connected import Scale
from bench.keeping import Memory, Quiet, Written
from bench.mass_return import most_within_a_second


def test_the_fullest_second_begins_anywhere() -> None:
    assert most_within_a_second([]) == 0
    assert most_within_a_second([0.9, 0.1, 1.0, 1.5, 1.8, 3.0]) == 4
    assert most_within_a_second([0.0, 1.0, 2.0]) == 1


def test_what_a_connection_holds_is_what_came_since() -> None:
    before, after = Memory(1_000, 900), Memory(21_000, 10_900)
    assert after.each_of(10, before) == Memory(2_000, 1_000)


def test_only_tables_that_were_written_meanwhile_are_told() -> None:
    before = Written({"spawns": 7, "gateways": 3}, transactions=100)
    after = Written({"spawns": 7, "gateways": 5, "duties": 1}, transactions=104)
    assert after.since(before) == Written({"duties": 1, "gateways": 2}, transactions=4)
    assert Quiet(30.0, 0.1, after.since(before)).rows_a_minute() == {"duties": 2, "gateways": 4}


def test_a_run_is_as_large_as_the_environment_wants() -> None:
    assert Scale.of({}).agents == 10_000
    assert Scale.of({"KICI_BENCH_AGENTS": "50"}).agents == 50
    assert Scale.of({"KICI_BENCH_QUIET_SECONDS": "0.5"}).quiet_seconds == 0.5
