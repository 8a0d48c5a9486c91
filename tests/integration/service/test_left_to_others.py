"""Requests that come while others decide: stored, and seen by the pass that comes next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kici_scaler.domain.request import RequestState, Result
from kici_scaler.service import admit, queues, request
from kici_scaler.service.answers import Answer
from kici_scaler.service.ports import NoHints, Patience, Turn
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from tests.integration.service import work
from tests.support.rows import Rows

pytestmark = pytest.mark.usefixtures("one_place")


@dataclass
class _Busy:
    """A mutex that somebody has, or of which nobody knows who has it."""

    got: bool | None
    rests_for: float = 0.0
    patience: list[Patience] = field(default_factory=list)

    @contextmanager
    def held(self, patience: Patience = Patience.AT_ONCE) -> Iterator[Turn]:
        self.patience.append(patience)
        yield Turn(self.got, rests_for=self.rests_for)


class _Hints(NoHints):
    """Counts who was told to see what was left."""

    def __init__(self) -> None:
        self.left = self.passes = 0
        self.reaches = True

    def admit(self, *, soon: bool = False) -> None:
        self.passes += 1

    def admit_left(self, turn: Turn) -> bool:
        self.left += 1
        return self.reaches


@pytest.fixture
def hints() -> _Hints:
    return _Hints()


def _ask(runtime: Runtime, job: str, **more: Any) -> Answer:
    bodies = [parse_request(work.body(job, "roomy", **more))]
    (answer,) = request.submit(runtime, bodies, may_leave=True)
    return answer


def test_who_wants_to_know_has_patience(runtime: Runtime, hints: _Hints) -> None:
    mutex = _Busy(False)
    busy = replace(runtime, mutex=mutex, hints=hints)
    (answer,) = request.submit(busy, [parse_request(work.body("job", "roomy"))])
    assert answer.result is Result.SPAWNING
    assert mutex.patience == [Patience.AT_ONCE]
    assert hints.left == 0


def test_one_that_may_wait_is_only_stored_and_the_next_pass_decides_all_of_them(
    runtime: Runtime, hints: _Hints, rows: Rows
) -> None:
    busy = replace(runtime, mutex=_Busy(False), hints=hints)
    answers = [_ask(busy, f"job-{number}") for number in range(3)]
    assert {(each.result, each.state) for each in answers} == {
        (Result.QUEUED, RequestState.WAITING)
    }
    assert rows.count("spawns") == 0
    assert hints.left == 3
    assert admit.run_pass(runtime).admitted == 3


def test_whoever_decides_next_decides_what_was_left_before_its_own(
    runtime: Runtime, hints: _Hints
) -> None:
    left = _ask(replace(runtime, mutex=_Busy(False), hints=hints), "left")
    assert left.result is Result.QUEUED
    _ask(runtime, "next")
    assert _ask(runtime, "left").result is Result.SPAWNING


def test_one_that_may_not_wait_has_patience_and_its_answer(runtime: Runtime, hints: _Hints) -> None:
    mutex = _Busy(False)
    busy = replace(runtime, mutex=mutex, hints=hints)
    assert _ask(busy, "job", wait=False).result is Result.SPAWNING
    assert mutex.patience == [Patience.AT_ONCE]
    assert hints.left == 0


@pytest.mark.parametrize("got", [True, None])
def test_it_is_decided_at_once_by_who_has_the_mutex_and_where_there_is_none(
    runtime: Runtime, hints: _Hints, got: bool | None
) -> None:
    mutex = _Busy(got)
    assert _ask(replace(runtime, mutex=mutex, hints=hints), "job").result is Result.SPAWNING
    assert mutex.patience == [Patience.NONE]
    assert hints.left == 0


def test_a_repeat_of_what_is_decided_is_answered_and_leaves_nothing(
    runtime: Runtime, hints: _Hints
) -> None:
    first = _ask(runtime, "job")
    assert _ask(replace(runtime, mutex=_Busy(False), hints=hints), "job") == first
    assert hints.left == 0


def test_where_nobody_can_be_told_it_is_decided_after_the_others(
    runtime: Runtime, hints: _Hints
) -> None:
    hints.reaches = False
    busy = replace(runtime, mutex=_Busy(False), hints=hints)
    assert _ask(busy, "job").result is Result.SPAWNING


def test_a_pass_over_what_was_left_decides_it(runtime: Runtime, hints: _Hints) -> None:
    _ask(replace(runtime, mutex=_Busy(False), hints=hints), "left")
    mutex = _Busy(True)
    done = admit.run_left(replace(runtime, mutex=mutex, hints=hints))
    assert done is not None
    assert done.admitted == 1
    assert mutex.patience == [Patience.COLLECTING]


def test_what_a_more_urgent_request_left_behind_is_decided_by_another_pass(
    runtime: Runtime, hints: _Hints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The urgent one takes a place at the head of the queue, whose rest is cut off."""
    monkeypatch.setattr(queues, "PER_QUEUE", 2 * request.SHARE)
    for number in range(4):
        _ask(replace(runtime, mutex=_Busy(False), hints=hints), f"left-{number}")
    _ask(replace(runtime, hints=hints), "urgent", priority=5)
    assert hints.passes == 1


def test_a_pass_over_what_was_left_is_put_off_while_more_is_collected(
    runtime: Runtime, hints: _Hints, rows: Rows
) -> None:
    _ask(replace(runtime, mutex=_Busy(False), hints=hints), "left")
    resting = replace(runtime, mutex=_Busy(False, rests_for=0.05), hints=hints)
    assert admit.run_left(resting) is None
    assert hints.left == 2
    assert rows.count("spawns") == 0


def test_a_pass_over_what_was_left_goes_on_without_a_mutex_that_nobody_gives_back(
    runtime: Runtime, hints: _Hints
) -> None:
    _ask(replace(runtime, mutex=_Busy(False), hints=hints), "left")
    done = admit.run_left(replace(runtime, mutex=_Busy(False), hints=hints))
    assert done is not None
    assert done.admitted == 1
