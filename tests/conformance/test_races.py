"""Many callers at once, and callers killed in the middle."""

from __future__ import annotations

import random
import threading
import time

from tests.conformance.callers import Caller
from tests.conformance.harness import Harness, soon
from tests.support.waiting import eventually
from workers.contract import Backend, SpawnedCompute
from workers.errors import NotOwner, Permanent

CALLERS = 6


def _spawn(harness: Harness, agent_id: str, token: int) -> Caller[SpawnedCompute]:
    return Caller(lambda: harness.open().spawn(harness.order(agent_id, token), soon()))


def _destroy(harness: Harness, agent_id: str, token: int) -> Caller[None]:
    return Caller(lambda: harness.open().destroy(harness.ref(agent_id, token), soon()))


def test_processes_that_spawn_one_name_at_once_make_one_compute(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    callers = [_spawn(harness, agent_id, token=3) for _ in range(CALLERS)]

    results = [each.result() for each in callers]

    names = {each.name for each in results if isinstance(each, SpawnedCompute)}
    assert [each for each in results if not isinstance(each, SpawnedCompute)] == []
    assert len(names) == 1
    eventually(lambda: harness.starts(agent_id) == 1)
    assert harness.living(agent_id) == 1


def test_of_several_leases_at_once_the_highest_owns_the_compute(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    callers = [_spawn(harness, agent_id, token) for token in range(1, CALLERS + 1)]

    results = [each.result() for each in callers]

    assert isinstance(results[-1], SpawnedCompute)
    assert all(isinstance(each, SpawnedCompute | NotOwner) for each in results)
    [found] = backend.inventory(harness.installation_id, soon())
    assert found.lease_token == CALLERS
    eventually(lambda: harness.starts(agent_id) == 1)
    assert harness.living(agent_id) == 1


def test_a_destroy_wins_over_the_spawns_it_races(harness: Harness, backend: Backend) -> None:
    for _ in range(5):
        agent_id = harness.new_agent_id()
        spawns = [_spawn(harness, agent_id, token) for token in (1, 2)]
        destroy = _destroy(harness, agent_id, token=9)

        results = [each.result() for each in spawns]

        assert destroy.result() is None
        assert all(isinstance(each, SpawnedCompute | NotOwner | Permanent) for each in results)
        assert harness.living(agent_id) == 0
    assert backend.inventory(harness.installation_id, soon()) == ()


def test_a_caller_killed_at_any_moment_leaves_nothing_double_and_nothing_lost(
    harness: Harness, backend: Backend
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    usual = _usual_seconds(harness, backend)
    pause = threading.Event()

    for number in range(harness.kill_rounds):
        agent_id = harness.new_agent_id()
        caller = _spawn(harness, agent_id, token=1)
        pause.wait(dice.uniform(0, 1.3 * usual))
        harness.kill(caller, number)
        caller.reap()

        _check_round(harness, backend, agent_id, repeats=dice.random() < 0.5)
    assert backend.inventory(harness.installation_id, soon()) == ()


def _usual_seconds(harness: Harness, backend: Backend) -> float:
    agent_id = harness.new_agent_id()
    began = time.monotonic()
    assert isinstance(_spawn(harness, agent_id, token=1).result(), SpawnedCompute)
    took = time.monotonic() - began
    backend.destroy(harness.ref(agent_id, 2), soon())
    return took


def _check_round(harness: Harness, backend: Backend, agent_id: str, *, repeats: bool) -> None:
    """The next lease either makes the name's one compute, or takes all of it away."""
    if repeats:
        try:
            backend.spawn(harness.order(agent_id, token=2), soon())
        except Permanent:
            assert harness.living(agent_id) == 0
        else:
            eventually(lambda: harness.starts(agent_id) == 1)
            assert harness.living(agent_id) == 1
        [found] = backend.inventory(harness.installation_id, soon())
        assert (found.agent_id, found.lease_token) == (agent_id, 2)
    backend.destroy(harness.ref(agent_id, 3), soon())
    assert harness.living(agent_id) == 0
    assert harness.starts(agent_id) <= 1
