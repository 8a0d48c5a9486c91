"""The helpers that other tests wait with."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.support.waiting import eventually, processes_of


@pytest.fixture
def sleeper() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that waits on its input, and the marker in its environment."""
    marker = f"marker-{uuid.uuid4().hex}"
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "TEST_MARKER": f"/folder/{marker}/state"},
    )
    yield process, marker
    process.kill()
    process.communicate()


def test_the_first_true_answer_is_returned() -> None:
    answers = iter([0, "", None, "here"])
    assert eventually(lambda: next(answers)) == "here"


def test_what_never_comes_true_fails_with_what_was_awaited_and_found() -> None:
    with pytest.raises(AssertionError, match=r" s: the agent is idle; got 0"):
        eventually(lambda: 0, within=0.05, why="the agent is idle")


def test_the_reason_may_tell_the_state_found_at_the_end() -> None:
    asked: list[int] = []

    def condition() -> bool:
        asked.append(1)
        return False

    with pytest.raises(AssertionError, match=r"asked \d+ times"):
        eventually(condition, within=0.05, why=lambda: f"asked {len(asked)} times")


def test_even_with_no_time_the_condition_is_asked() -> None:
    assert eventually(lambda: True, within=0) is True


def test_an_error_of_the_condition_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0, within=1)


def test_a_marked_process_is_found_while_it_lives(
    sleeper: tuple[subprocess.Popen[bytes], str],
) -> None:
    process, marker = sleeper
    found = eventually(lambda: processes_of(marker), why="the process shows its environment")
    assert [each.pid for each in found] == [process.pid]


def test_a_process_that_exited_but_was_not_waited_for_is_not_live(
    sleeper: tuple[subprocess.Popen[bytes], str],
) -> None:
    process, marker = sleeper
    eventually(lambda: processes_of(marker), why="the process shows its environment")
    process.kill()
    eventually(lambda: not processes_of(marker), why="the killed process is gone")
    assert process.poll() is not None
