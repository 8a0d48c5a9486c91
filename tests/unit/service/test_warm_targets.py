"""How many agents a pool keeps at a moment, by its schedules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kici_scaler.domain.scalers import WarmPool, WarmSchedule
from kici_scaler.service.warm_targets import pool_target

BERLIN = "Europe/Berlin"


def _pool(*schedules: tuple[str, int], zone: str = "UTC") -> WarmPool:
    return WarmPool(1, schedules=tuple(WarmSchedule(cron, zone, size) for cron, size in schedules))


def _at(moment: str) -> datetime:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC)


def test_without_schedules_the_size_counts_and_without_a_pool_nothing_is_kept() -> None:
    assert pool_target(_pool(), _at("2025-06-02T12:00")) == 1
    assert pool_target(None, _at("2025-06-02T12:00")) == 0


@pytest.mark.parametrize(
    ("moment", "size"),
    [
        ("2025-06-02T07:59:59", 1),
        ("2025-06-02T08:00:00", 9),
        ("2025-06-02T17:59:30", 9),
        ("2025-06-02T18:00:00", 1),
        ("2025-06-07T12:00:00", 1),
    ],
)
def test_a_span_holds_while_it_matches_and_the_size_otherwise(moment: str, size: int) -> None:
    assert pool_target(_pool(("* 8-17 * * 1-5", 9)), _at(moment)) == size


@pytest.mark.parametrize(
    ("moment", "size"),
    [
        ("2025-06-02T07:59", 2),
        ("2025-06-02T08:00", 9),
        ("2025-06-02T17:59", 9),
        ("2025-06-02T18:00", 2),
        ("2025-06-08T12:00", 2),
    ],
)
def test_a_moment_begins_what_holds_until_another_begins(moment: str, size: int) -> None:
    pool = _pool(("0 8 * * 1-5", 9), ("0 18 * * *", 2))
    assert pool_target(pool, _at(moment)) == size


def test_the_one_that_matched_last_counts_and_among_equals_the_later_in_the_list() -> None:
    pool = _pool(("0 8 * * *", 5), ("* 9-10 * * *", 7), ("0 8 * * *", 6))
    assert pool_target(pool, _at("2025-06-02T08:30")) == 6
    assert pool_target(pool, _at("2025-06-02T09:30")) == 7
    assert pool_target(pool, _at("2025-06-02T11:00")) == 6


def test_each_schedule_is_read_in_its_own_timezone() -> None:
    pool = WarmPool(
        1,
        schedules=(
            WarmSchedule("0 8 * * *", "America/New_York", 5),
            WarmSchedule("0 8 * * *", BERLIN, 3),
        ),
    )
    assert pool_target(pool, _at("2025-06-02T06:30")) == 3
    assert pool_target(pool, _at("2025-06-02T12:30")) == 5


HALF_PAST_TWO = (("0 2 * * *", 10), ("30 2 * * *", 20))


@pytest.mark.parametrize(
    ("moment", "size"),
    [
        ("2025-03-30T00:59", 20),
        ("2025-03-30T01:00", 20),
        ("2025-03-30T03:00", 20),
    ],
)
def test_a_time_that_is_skipped_in_spring_has_come_once_clocks_are_past_it(
    moment: str, size: int
) -> None:
    assert pool_target(_pool(*HALF_PAST_TWO, zone=BERLIN), _at(moment)) == size
    skipped_alone = _pool(("0 1 * * *", 4), ("30 2 * * *", 8), zone=BERLIN)
    assert pool_target(skipped_alone, _at("2025-03-30T00:30")) == 4
    assert pool_target(skipped_alone, _at("2025-03-30T01:05")) == 8


@pytest.mark.parametrize(
    ("moment", "size"),
    [
        ("2025-10-26T00:05", 10),
        ("2025-10-26T00:35", 20),
        ("2025-10-26T01:05", 20),
        ("2025-10-26T01:35", 20),
        ("2025-10-26T02:05", 20),
        ("2025-10-27T01:05", 10),
    ],
)
def test_a_time_that_is_shown_twice_in_autumn_comes_once(moment: str, size: int) -> None:
    assert pool_target(_pool(*HALF_PAST_TWO, zone=BERLIN), _at(moment)) == size


def test_a_span_holds_in_both_of_the_hours_that_are_shown_twice() -> None:
    pool = _pool(("* 2 * * *", 9), zone=BERLIN)
    sizes = [pool_target(pool, _at(f"2025-10-26T{hour:02}:30")) for hour in range(-0, 4)]
    assert sizes == [9, 9, 1, 1]
    assert pool_target(pool, _at("2025-03-30T01:30")) == 1


def test_a_leap_day_is_found_years_back() -> None:
    assert pool_target(_pool(("0 0 29 2 *", 7)), _at("2027-06-01T00:00")) == 7
