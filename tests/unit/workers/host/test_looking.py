"""Looks at compute: several at once, each agent once at a time, and never for too long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service.inspect import InspectOrder
from kici_scaler.store.inspections import Inspected
from workers.host.looking import LOOKS_AT_ONCE, Looks


def _order(agent: str) -> InspectOrder:
    row = Inspected(agent, SpawnState.BUSY, "local", 1, 1, {}, "job", "run")
    return InspectOrder(row, {})


class _Runtime:
    """A runtime that answers only once it is let."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.begun = threading.Semaphore(0)
        self.asked: list[str] = []

    def __call__(self, order: InspectOrder) -> bool:
        self.asked.append(order.row.agent_id)
        self.begun.release()
        assert self.answers.wait(60)
        return True

    def wait_for(self, number: int) -> None:
        for _ in range(number):
            assert self.begun.acquire(timeout=60)


@pytest.fixture
def runtime() -> Iterator[_Runtime]:
    made = _Runtime()
    yield made
    made.answers.set()


def test_several_are_looked_at_at_once_and_no_more_than_that(runtime: _Runtime) -> None:
    looks = Looks(runtime)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(looks.at, [_order(f"a{n}") for n in range(LOOKS_AT_ONCE + 3)])
        runtime.wait_for(LOOKS_AT_ONCE)
        assert len(runtime.asked) == LOOKS_AT_ONCE
        runtime.answers.set()
        assert asked.result(60) == LOOKS_AT_ONCE + 3


def test_who_is_being_looked_at_is_not_looked_at_again(runtime: _Runtime) -> None:
    looks = Looks(runtime)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(looks.at, [_order("a"), _order("a")])
        runtime.wait_for(1)
        assert looks.at([_order("a")]) == 0
        runtime.answers.set()
        assert first.result(60) == 1
    assert runtime.asked == ["a"]
    assert looks.at([_order("a")]) == 1, "a later request looks anew"


def test_a_runtime_that_does_not_answer_holds_a_request_for_a_bounded_time(
    runtime: _Runtime,
) -> None:
    looks = Looks(runtime)
    orders = [_order(f"a{n}") for n in range(LOOKS_AT_ONCE + 5)]
    assert looks.at(orders, within=0.05) == 0
    runtime.answers.set()
    waiting = [each for each in orders if each.row.agent_id not in runtime.asked]
    assert len(waiting) == 5
    assert looks.at(waiting) == 5, "what was not begun may be asked for again"


def test_one_that_cannot_be_looked_at_hides_no_other() -> None:
    def look(order: InspectOrder) -> bool:
        if order.row.agent_id == "bad":
            raise OSError("no such runtime")
        return True

    assert Looks(look).at([_order(name) for name in ("a", "bad", "b")]) == 2
