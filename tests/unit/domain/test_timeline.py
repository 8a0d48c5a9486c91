"""A life is cut into phases at the moments that were noted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.domain.timeline import ORDER, phases

START = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_every_state_has_its_place() -> None:
    assert set(SpawnState) <= set(ORDER)


def test_phases_follow_each_other_and_the_last_goes_on() -> None:
    found = phases({"busy": at(5), "reserved": at(1), "requested": at(0)}, at(9))
    assert [(each.name, each.seconds, each.is_open) for each in found] == [
        ("waiting", 1, False), ("reserved", 4, False), ("busy", 4, True),
    ]  # fmt: skip


def test_a_life_that_is_over_goes_on_no_more() -> None:
    found = phases({"reserved": at(0).isoformat(), "gone": at(3).isoformat()}, at(100))
    assert [(each.name, each.seconds, each.is_open) for each in found] == [("reserved", 3, False)]


def test_moments_of_the_same_time_keep_the_order_of_a_life() -> None:
    found = phases({"idle": at(2), "booting": at(2), "spawning": at(2), "gone": at(2)}, at(3))
    assert [each.name for each in found] == ["spawning", "booting", "idle"]
    assert {each.seconds for each in found} == {0}


def test_a_moment_before_the_one_it_follows_makes_no_negative_phase() -> None:
    found = phases({"spawning": at(4), "booting": at(1), "idle": at(6)}, at(8))
    assert [(each.name, each.seconds) for each in found] == [
        ("spawning", 0), ("booting", 2), ("idle", 2),
    ]  # fmt: skip


def test_nothing_known_is_no_phase() -> None:
    assert phases({}, START) == ()
