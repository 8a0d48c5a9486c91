"""A start is asked about when its last answer is old, and at no other time."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kici_scaler.service import start
from kici_scaler.store.engine import DatabaseUnreachable
from workers.host.wanted import FRESH_SECONDS, StillWanted

TAKEN = 100.0
OLD = FRESH_SECONDS + 0.01


@dataclass
class Rows:
    """What the rows say, and how often they were asked."""

    says: bool | Exception = True
    asked: int = 0
    now: float = field(default=TAKEN)

    def answer(self, *_: object) -> bool:
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    found = Rows()
    monkeypatch.setattr(start, "still_wanted", found.answer)
    return found


@pytest.fixture
def wanted(rows: Rows) -> StillWanted:
    order = cast(Any, SimpleNamespace(taken_at=TAKEN))
    return StillWanted(cast(Any, None), order, clock=lambda: rows.now)


def test_a_start_that_was_just_taken_is_not_asked_about(rows: Rows, wanted: StillWanted) -> None:
    rows.says = False
    assert wanted()
    assert rows.asked == 0


def test_one_that_took_its_time_is(rows: Rows, wanted: StillWanted) -> None:
    rows.says, rows.now = False, TAKEN + OLD
    assert not wanted()
    assert not wanted()
    assert rows.asked == 2


def test_an_answer_counts_for_as_long_as_the_take(rows: Rows, wanted: StillWanted) -> None:
    rows.now = TAKEN + OLD
    assert wanted()
    rows.says = False
    assert wanted()
    rows.now += OLD
    assert not wanted()
    assert rows.asked == 2


def test_rows_that_cannot_be_asked_stop_nothing_and_are_no_answer(
    rows: Rows, wanted: StillWanted
) -> None:
    rows.says, rows.now = DatabaseUnreachable("away"), TAKEN + OLD
    assert wanted()
    rows.says = False
    assert not wanted()
