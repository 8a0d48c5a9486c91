"""Two hundred microVMs whose worker, monitor or VMM is killed at any moment: nothing is left."""

from __future__ import annotations

import random
import threading

import pytest

from tests.conformance.callers import Caller
from tests.conformance.harness import soon
from tests.integration.workers.firecracker.test_failures import left
from tests.support.firecracker import FirecrackerHarness
from workers.contract import SpawnedCompute
from workers.errors import Permanent
from workers.firecracker.backend import FirecrackerBackend

ROUNDS = 200
USUAL_SECONDS = 1.5


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_kills_at_any_moment_leave_nothing(
    harness: FirecrackerHarness, backend: FirecrackerBackend
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    pause = threading.Event()
    remains: dict[str, list[str]] = {}

    for number in range(ROUNDS):
        agent_id = harness.new_agent_id()
        caller: Caller[SpawnedCompute] = Caller(
            lambda agent_id=agent_id: harness.open().spawn(harness.order(agent_id), soon())  # type: ignore[misc]  # bound now
        )
        pause.wait(dice.uniform(0, USUAL_SECONDS))
        harness.kill(caller, number)
        caller.reap()
        if dice.random() < 0.3:
            _try_again(harness, agent_id)
        destroyer: Caller[None] = Caller(
            lambda agent_id=agent_id: harness.open().destroy(harness.ref(agent_id, 3), soon())  # type: ignore[misc]  # bound now
        )
        if dice.random() < 0.3:
            pause.wait(dice.uniform(0, 0.5))
            harness.kill(destroyer, number)
        destroyer.reap()
        backend.destroy(harness.ref(agent_id, 4), soon())
        assert harness.starts(agent_id) <= 1
        if found := left(harness, agent_id):
            remains[agent_id] = found

    assert remains == {}
    assert backend.inventory(harness.installation_id, soon()) == ()


def _try_again(harness: FirecrackerHarness, agent_id: str) -> None:
    try:
        harness.open().spawn(harness.order(agent_id, token=2), soon())
    except Permanent:
        assert harness.living(agent_id) == 0
