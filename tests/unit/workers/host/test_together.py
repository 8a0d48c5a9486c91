"""What many want at once is done at once, and the error of one is nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from kici_scaler.store.engine import DatabaseUnreachable
from tests.support.waiting import eventually
from workers.host.together import Together

PATIENCE_SECONDS = 10.0


class Broken(Exception):
    """One of them cannot be done."""


@dataclass
class Doer:
    """Doubles numbers, once it may; 13 cannot be doubled."""

    away: bool = False
    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    batches: list[list[int]] = field(default_factory=list)

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        self.begun.set()
        assert self.go_on.wait(PATIENCE_SECONDS)
        if self.away:
            raise DatabaseUnreachable("away")
        if 13 in numbers:
            raise Broken
        return [2 * number for number in numbers]


def _ask(doer: Doer, *numbers: int) -> list[int | BaseException]:
    """The first alone; the others come while that is being done."""
    together = Together(doer)
    with ThreadPoolExecutor(len(numbers)) as pool:
        answers = [pool.submit(together, numbers[0])]
        assert doer.begun.wait(PATIENCE_SECONDS)
        answers += [pool.submit(together, number) for number in numbers[1:]]
        eventually(lambda: len(together._waiting) == len(numbers) - 1, why="all have come")
        doer.go_on.set()
        errors = [each.exception(PATIENCE_SECONDS) for each in answers]
        return [
            each.result() if error is None else error
            for each, error in zip(answers, errors, strict=True)
        ]


def test_who_comes_meanwhile_is_done_with_the_others_and_gets_its_own_answer() -> None:
    doer = Doer()
    assert _ask(doer, 1, 2, 3, 4) == [2, 4, 6, 8]
    assert [sorted(each) for each in doer.batches] == [[1], [2, 3, 4]]


def test_one_that_cannot_be_done_costs_the_others_nothing() -> None:
    doer = Doer()
    first, *others, broken = _ask(doer, 1, 2, 3, 13)
    assert [first, *others] == [2, 4, 6]
    assert isinstance(broken, Broken)


def test_an_outage_is_told_to_all_and_not_asked_for_by_each() -> None:
    doer = Doer(away=True)
    answers = _ask(doer, 1, 2, 3, 4)
    assert all(isinstance(each, DatabaseUnreachable) for each in answers)
    assert len(doer.batches) == 2


def test_nobody_waits_for_one_that_broke_off() -> None:
    def break_off(_: Sequence[int]) -> list[int]:
        raise SystemExit

    together: Together[int, int] = Together(break_off)
    for _ in range(2):
        with pytest.raises(SystemExit):
            together(1)
