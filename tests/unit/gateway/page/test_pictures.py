"""What is drawn fits, adds up and is told in words as well."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain.timeline import phases
from kici_scaler.gateway.page.pictures import THINNEST, bar, strip, timeline
from kici_scaler.gateway.page.render import span

START = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def test_parts_stand_side_by_side_in_proportion() -> None:
    drawn = bar([("busy", 2), ("idle", 0), ("starting", 3)], 10, "5 of 10")
    assert [(each.kind, each.x, each.width) for each in drawn.segments] == [
        ("busy", 0, 20), ("starting", 20, 30),
    ]  # fmt: skip


def test_more_than_there_is_fills_the_bar_and_no_more() -> None:
    drawn = bar([("busy", 8), ("ending", 8)], 10, "")
    assert [(each.x, each.width) for each in drawn.segments] == [(0, 80), (80, 20)]


def test_of_nothing_nothing_is_drawn() -> None:
    assert bar([("busy", 1)], 0, "").segments == ()
    assert strip((), "").segments == ()
    assert timeline(()).rows == ()


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
def test_every_phase_is_seen_within_the_picture(seconds: list[int]) -> None:
    names = ["requested", "reserved", "spawning", "booting", "idle", "busy", "destroying",
             "quarantined"]  # fmt: skip
    timings: dict[str, object] = {}
    now = START
    for name, length in zip(names, seconds, strict=False):
        timings[name] = now
        now += timedelta(seconds=length)
    drawn = timeline(phases(timings, now))
    assert len(drawn.rows) == len(seconds)
    for row in drawn.rows:
        assert row.width >= min(100, THINNEST)
        assert row.x >= 0
        assert row.x + row.width <= 100.01
        assert row.y + 30 <= drawn.height


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0.0 s"), (0.04, "0.0 s"), (9.96, "10.0 s"), (12.7, "12 s"), (60, "1 min"),
     (95, "1 min 35 s"), (3_600, "1 h"), (3_725, "1 h 2 min"), (100_000, "1 d 3 h")],
)  # fmt: skip
def test_durations_are_told_in_their_two_largest_units(seconds: float, words: str) -> None:
    assert span(seconds) == words
