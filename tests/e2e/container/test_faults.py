"""Many agents made and taken away while the runtime fails and workers die: nothing stays."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from tests.conformance.callers import Caller
from tests.e2e.container.engines import TestEngine
from tests.e2e.container.faulty_engine import Faults, faulty
from tests.e2e.container.harness import IMAGE
from tests.e2e.container.images import build, image_id
from tests.e2e.container.workshop import Workshop, soon
from workers.contract import ComputeRef, Deadline, SpawnOrder
from workers.errors import BackendError
from workers.network.isolation import Isolation


@dataclass(frozen=True)
class Effort:
    """How many drivers at once, and how many agents each makes and takes away."""

    drivers: int
    rounds: int


CALL_SECONDS = {"docker": 8.0, "podman": 30.0}
"""More on Podman, whose every request starts programs."""

FEW, A_HUNDRED = Effort(2, 5), Effort(4, 25)

_WITH_VOLUME = f"FROM {IMAGE}\nVOLUME /cache\n"

T = TypeVar("T")


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "effort", [FEW, pytest.param(A_HUNDRED, marks=pytest.mark.long)], ids=["few", "hundred"]
)
def test_nothing_stays_whatever_fails(engine: TestEngine, tmp_path: Path, effort: Effort) -> None:
    seed = int(os.environ.get("KICI_E2E_SEED") or random.randrange(1 << 32))
    print(f"seed {seed} (KICI_E2E_SEED repeats it)")
    image = f"localhost/kici-e2e/with-volume-{seed}:1"
    api = engine.client(timeout=120)
    build(api, image, _WITH_VOLUME, {})
    volumes_before = _volumes(engine)
    workshops = [
        Workshop(engine, tmp_path / f"driver-{number}") for number in range(effort.drivers)
    ]

    drivers = [
        Caller(partial(_drive, each, image, seed + number, effort.rounds))
        for number, each in enumerate(workshops)
    ]
    results = [each.result(within=2300) for each in drivers]

    assert [each for each in results if not isinstance(each, str)] == [], f"seed {seed}"
    print("; ".join(map(str, results)))
    for each in workshops:
        _reclaim_all(each)
    ours = {each.installation_id for each in workshops}
    labels = [each["Labels"].get("kici-installation") for each in api.containers(all=True)]
    assert not ours & set(labels), f"seed {seed}"
    assert _volumes(engine) == volumes_before, f"seed {seed}"
    owners = {owner.installation_id for owner in Isolation().addresses(soon())}
    assert not ours & owners, f"seed {seed}"
    networks = [each["Name"] for each in api.networks() if each["Name"].startswith("kici")]
    assert networks == ["kici-agent-net"]
    assert image_id(api, image)
    api.close()


def _volumes(engine: TestEngine) -> set[str]:
    api = engine.client()
    listing: Callable[[], dict[str, list[dict[str, str]] | None]] = api.volumes
    found = {each["Name"] for each in listing()["Volumes"] or []}
    api.close()
    return found


def _reclaim_all(workshop: Workshop) -> None:
    """What the periodic inventory does about what came into being after its end."""
    afresh = Workshop(workshop.engine, workshop.folder / "afresh", workshop.installation_id)
    backend = afresh.open()
    backend.prepare([afresh.scaler()], soon())
    for found in backend.inventory(workshop.installation_id, soon()):
        assert not found.running, f"{found.name} runs, and nobody knows it"
        ref = ComputeRef(
            found.installation_id, found.scaler, found.agent_id, found.lease_token, found.ref
        )
        backend.reclaim(ref, soon())
    assert backend.inventory(workshop.installation_id, soon()) == ()


def _drive(workshop: Workshop, image: str, seed: int, rounds: int) -> str:
    """Make and take away one agent after another, as a service with leases would."""
    dice = random.Random(seed)
    door = workshop.folder / "faulty.sock"
    faults = Faults(slow_seconds=(1.0, 1.1 * CALL_SECONDS[workshop.engine.runtime]))
    tally = {"calls": 0, "killed": 0, "failed": 0, "spawned": 0}
    with faulty(door, workshop.engine.socket, seed, faults):
        for _ in range(rounds):
            order = workshop.order(image=image, options={"socketPath": str(door)})
            token = _spawn_sometimes(workshop, order, dice, tally)
            _destroy_in_the_end(workshop, order, token, tally)
            assert not _running(workshop, order), f"{order.agent_id} was said to be gone"
    return " ".join(f"{key} {count}" for key, count in tally.items())


def _spawn_sometimes(
    workshop: Workshop, order: SpawnOrder, dice: random.Random, tally: dict[str, int]
) -> int:
    """Try up to three leases to make it; returns the last token."""
    for token in range(1, 4):
        made = _called(partial(_spawn, workshop, replace(order, lease_token=token)), tally)
        tally["spawned"] += made
        if made or dice.random() < 0.15:
            return token
    return 3


def _destroy_in_the_end(
    workshop: Workshop, order: SpawnOrder, token: int, tally: dict[str, int]
) -> None:
    for later in range(token + 1, token + 40):
        ref = replace(workshop.ref(order, later), options=order.options)
        if _called(partial(_destroy, workshop, ref), tally):
            return
    raise AssertionError(f"{order.agent_id} could not be destroyed")


def _deadline(workshop: Workshop) -> Deadline:
    return Deadline.after(CALL_SECONDS[workshop.engine.runtime])


def _spawn(workshop: Workshop, order: SpawnOrder) -> object:
    return workshop.open().spawn(order, _deadline(workshop))


def _destroy(workshop: Workshop, ref: ComputeRef) -> None:
    workshop.open().destroy(ref, _deadline(workshop))


def _called(act: Callable[[], object], tally: dict[str, int]) -> bool:
    """Whether a worker did it; it may fail in any way it may, and be killed."""
    caller = Caller(act)
    tally["calls"] += 1
    try:
        result = caller.result(within=180)
    except AssertionError as problem:
        if "ended without an answer" not in str(problem):
            raise
        tally["killed"] += 1
        return False
    if isinstance(result, Exception):
        assert isinstance(result, BackendError), repr(result)
        tally["failed"] += 1
        return False
    return True


def _running(workshop: Workshop, order: SpawnOrder) -> list[str]:
    api = workshop.engine.client()
    found = api.containers(filters={"label": [f"kici-agent-id={order.agent_id}"]})
    api.close()
    return [each["Id"] for each in found]
