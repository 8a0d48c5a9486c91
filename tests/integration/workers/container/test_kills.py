"""A worker killed before and after every single request of a call: the next one puts it right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.conformance.callers import Caller
from tests.conformance.harness import Harness, soon
from tests.integration.workers.container.conftest import PretendedHarness
from workers.contract import Backend, SpawnOrder

FEWEST_REQUESTS = 4
"""A call that makes fewer would mean that nothing is shown here."""

before_and_after = pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])


def _was_killed(act: Callable[[], object]) -> bool:
    """Whether a worker was killed while it did this; nothing else may go wrong with it."""
    caller = Caller(act)
    try:
        result = caller.result()
    except AssertionError as problem:
        if "ended without an answer" not in str(problem):
            raise
        return True
    if isinstance(result, Exception):
        raise result
    return False


def _spawn(harness: Harness, order: SpawnOrder) -> object:
    return harness.open().spawn(order, soon())


@before_and_after
def test_a_spawn_cut_short_anywhere_is_finished_by_the_next_lease(
    harness: Harness, backend: Backend, is_done: bool
) -> None:
    assert isinstance(harness, PretendedHarness)
    number, was_killed = 0, True
    while was_killed:
        number, agent_id = number + 1, harness.new_agent_id()
        first = harness.order(agent_id, token=1)
        harness.engine.kill(number, is_done=is_done)
        was_killed = _was_killed(partial(_spawn, harness, first))
        harness.engine.spare()

        backend.spawn(harness.order(agent_id, token=2), soon())

        assert (harness.living(agent_id), harness.starts(agent_id)) == (1, 1), f"request {number}"
    assert number > FEWEST_REQUESTS


@before_and_after
def test_a_spawn_or_destroy_cut_short_anywhere_is_taken_away_whole(
    harness: Harness, backend: Backend, is_done: bool
) -> None:
    assert isinstance(harness, PretendedHarness)
    engine, number, agent_id = harness.engine, 0, ""

    def make_and_remove() -> None:
        harness.open().spawn(harness.order(agent_id, token=1), soon())
        harness.open().destroy(harness.ref(agent_id, 2), soon())

    was_killed = True
    while was_killed:
        number, agent_id = number + 1, harness.new_agent_id()
        engine.kill(number, is_done=is_done)
        was_killed = _was_killed(make_and_remove)
        engine.spare()

        backend.destroy(harness.ref(agent_id, 3), soon())

        assert engine.containers(agent_id) == [], f"request {number}"
        assert harness.starts(agent_id) <= 1, f"request {number}"
    assert number > FEWEST_REQUESTS
