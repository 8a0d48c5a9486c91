"""A pump: work that a slot was missing for is never left behind, whatever happens at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.waiting import eventually
from workers.host.pump import Pump

PATIENCE_SECONDS = 10.0


class Broken(Exception):
    """The rows could not be read."""


@dataclass
class Yard:
    """Rows of which only so many may be worked on at once, whatever the pump's own slots."""

    waiting: deque[str] = field(default_factory=deque)
    allowed: int = 1
    done: list[str] = field(default_factory=list)
    at_work: int = 0
    takes: int = 0
    looked: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    finish: threading.Event = field(default_factory=threading.Event)
    apart: dict[str, threading.Event] = field(default_factory=dict)
    """What those wait for that do not end with all others."""
    pauses_after_reading: bool = False
    breaks: bool = False

    def take(self, most: int) -> tuple[list[str], bool]:
        self.takes += 1
        if self.breaks:
            raise Broken
        room = max(0, min(most, self.allowed - self.at_work, len(self.waiting)))
        orders = [self.waiting.popleft() for _ in range(room)]
        self.at_work += len(orders)
        left = bool(self.waiting)
        if self.pauses_after_reading:
            self.looked.set()
            assert self.go_on.wait(PATIENCE_SECONDS)
        return orders, left

    def act(self, order: str) -> None:
        assert self.apart.get(order, self.finish).wait(PATIENCE_SECONDS)
        self.at_work -= 1
        self.done.append(order)


@pytest.fixture
def yard() -> Yard:
    return Yard()


@pytest.fixture
def pump(yard: Yard) -> Iterator[Pump[str]]:
    made = Pump("test", 4, yard.take, yard.act)
    yield made
    yard.finish.set()
    yard.go_on.set()
    made.close(wait=True)


def _in_a_thread(call: object) -> threading.Thread:
    assert callable(call)
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_a_slot_that_is_freed_while_rows_are_read_is_used(pump: Pump[str], yard: Yard) -> None:
    yard.waiting.append("first")
    assert pump.prime() == 1
    yard.waiting.append("second")
    yard.pauses_after_reading = True
    thread = _in_a_thread(pump.prime)
    assert yard.looked.wait(PATIENCE_SECONDS)
    yard.finish.set()
    eventually(lambda: not pump.running, why="the first order ended")
    yard.go_on.set()
    thread.join(PATIENCE_SECONDS)
    eventually(lambda: yard.done == ["first", "second"], why="the second was started, too")


def test_what_is_taken_while_the_pump_closes_is_still_done(pump: Pump[str], yard: Yard) -> None:
    yard.waiting.append("late")
    yard.pauses_after_reading = True
    yard.finish.set()
    taking = _in_a_thread(pump.prime)
    assert yard.looked.wait(PATIENCE_SECONDS)
    closing = _in_a_thread(lambda: pump.close(wait=True))
    eventually(lambda: pump.closed, why="the pump is told to close")
    yard.go_on.set()
    for thread in (taking, closing):
        thread.join(PATIENCE_SECONDS)
    assert yard.done == ["late"]
    assert pump.prime() == 0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free slots wait for others for longer than any test takes."""
    monkeypatch.setattr("workers.host.pump.GATHER_SECONDS", 10 * PATIENCE_SECONDS)


@pytest.mark.usefixtures("patient")
def test_free_slots_wait_until_they_are_half_of_all_and_are_filled_by_one_take(
    pump: Pump[str], yard: Yard
) -> None:
    yard.allowed = 4
    yard.waiting.extend("abcdef")
    yard.apart = {each: threading.Event() for each in "abcd"}
    assert pump.prime() == 4
    yard.apart["a"].set()
    eventually(lambda: len(pump.running) == 3, why="one has ended")
    assert yard.takes == 1
    yard.apart["b"].set()
    eventually(lambda: yard.takes == 2, why="two slots are filled")
    assert sorted(pump.running) == ["c", "d", "e", "f"]
    for each in yard.apart.values():
        each.set()
    yard.finish.set()


def test_a_free_slot_does_not_wait_for_others_for_long(pump: Pump[str], yard: Yard) -> None:
    yard.allowed = 4
    yard.waiting.extend("abcde")
    yard.apart = {each: threading.Event() for each in "abcd"}
    assert pump.prime() == 4
    yard.apart["a"].set()
    eventually(lambda: "e" in pump.running, why="its slot is filled")
    for each in yard.apart.values():
        each.set()
    yard.finish.set()


def test_only_what_is_done_right_now_counts_as_running(pump: Pump[str], yard: Yard) -> None:
    yard.allowed = 2
    yard.waiting.extend(["a", "b", "c"])
    pump.prime()
    assert sorted(pump.running) == ["a", "b"]
    yard.finish.set()
    eventually(lambda: len(yard.done) == 3, why="all were done")
    eventually(lambda: not pump.running, why="nothing runs")


def test_rows_that_could_not_be_read_are_looked_at_when_an_order_ends(
    pump: Pump[str], yard: Yard
) -> None:
    yard.waiting.append("first")
    pump.prime()
    yard.waiting.append("second")
    yard.breaks = True
    with pytest.raises(Broken):
        pump.prime()
    yard.breaks = False
    yard.finish.set()
    eventually(lambda: yard.done == ["first", "second"], why="both were done")
