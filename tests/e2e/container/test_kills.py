"""A worker killed before and after every single request of a call: the next one puts it right."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.callers import Caller
from tests.e2e.container.engines import TestEngine
from tests.e2e.container.faulty_engine import KilledAt, faulty
from tests.e2e.container.workshop import IDLE, Workshop, soon
from workers.container.place import Place, place_of
from workers.contract import SpawnOrder
from workers.errors import Permanent
from workers.network.access import Owner
from workers.network.isolation import Isolation

FEWEST_REQUESTS = 4
"""A call that makes fewer would mean that nothing is shown here."""

_WITNESS = f'echo ran >> "/harness/ran-$KICI_AGENT_ID"; {IDLE}'

before_and_after = pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@dataclass(frozen=True)
class Round:
    """One agent, whose runtime kills the sender of one request."""

    workshop: Workshop
    order: SpawnOrder
    door: Place
    """Where the runtime seems to be."""

    def spawn(self, token: int) -> object:
        """As a fresh worker would."""
        return self.workshop.open().spawn(replace(self.order, lease_token=token), soon())

    def destroy(self, token: int) -> None:
        """As a fresh worker would."""
        ref = replace(self.workshop.ref(self.order, token), ref=self.door.as_json())
        self.workshop.open().destroy(ref, soon())

    def containers(self) -> list[str]:
        """The states of what there is of the agent, by the runtime's own word."""
        api = self.workshop.engine.client()
        mark = f"kici-agent-id={self.order.agent_id}"
        found = api.containers(all=True, filters={"label": [mark]})
        api.close()
        return [str(each["State"]).lower() for each in found]

    def has_rules(self) -> bool:
        """Whether the machine's rules name the agent."""
        owner = Owner(self.order.installation_id, self.order.agent_id)
        return owner in Isolation().addresses(soon())

    def runs(self) -> int:
        """How often it was started."""
        witness = self.workshop.shared / f"ran-{self.order.agent_id}"
        return len(witness.read_text().split()) if witness.exists() else 0

    def expect_nothing(self) -> None:
        """See that it is gone, with its rules, and was started once at most."""
        assert self.containers() == []
        assert not self.has_rules()
        assert self.runs() <= 1


@contextmanager
def _round(workshop: Workshop, order: SpawnOrder, number: int, *, is_done: bool) -> Iterator[Round]:
    path = workshop.folder / f"door-{number}.sock"
    killed = KilledAt(number, is_done, spared=os.getpid())
    options = {**order.options, "socketPath": str(path)}
    with faulty(path, workshop.engine.socket, 0, killed):
        yield Round(workshop, replace(order, options=options), place_of(options, {}, bool))


def _was_killed(act: Callable[[], object]) -> bool:
    """Whether a worker was killed while it did this; nothing else may go wrong with it."""
    caller = Caller(act)
    try:
        result = caller.result(within=120)
    except AssertionError as problem:
        if "ended without an answer" not in str(problem):
            raise
        return True
    if isinstance(result, Exception):
        raise result
    return False


@pytest.fixture
def prepared(engine: TestEngine, tmp_path: Path) -> Iterator[Workshop]:
    """An installation whose network is there already."""
    made = Workshop(engine, tmp_path)
    made.open().prepare([made.scaler()], soon())
    yield made
    made.close()


@before_and_after
def test_a_spawn_cut_short_anywhere_is_finished_by_the_next_lease(
    prepared: Workshop, is_done: bool
) -> None:
    number, was_killed = 0, True
    while was_killed:
        number += 1
        with _round(prepared, prepared.order(_WITNESS), number, is_done=is_done) as each:
            was_killed = _was_killed(partial(each.spawn, 1))
            try:
                each.spawn(2)
            except Permanent:
                assert "running" not in each.containers(), f"request {number}"
            else:
                assert each.containers() == ["running"], f"request {number}"
                assert each.has_rules(), f"request {number}"
            each.destroy(3)
            each.expect_nothing()
    assert number > FEWEST_REQUESTS


@before_and_after
def test_a_spawn_cut_short_anywhere_is_taken_away_whole(prepared: Workshop, is_done: bool) -> None:
    number, was_killed = 0, True
    while was_killed:
        number += 1
        with _round(prepared, prepared.order(_WITNESS), number, is_done=is_done) as each:
            was_killed = _was_killed(partial(each.spawn, 1))
            each.destroy(2)
            each.expect_nothing()
    assert number > FEWEST_REQUESTS


@before_and_after
def test_a_destroy_cut_short_anywhere_is_finished_by_the_next(
    prepared: Workshop, is_done: bool
) -> None:
    number, was_killed = 0, True
    while was_killed:
        number += 1
        order = prepared.order(_WITNESS)
        prepared.open().spawn(order, soon())
        with _round(prepared, order, number, is_done=is_done) as each:
            was_killed = _was_killed(partial(each.destroy, 2))
            each.destroy(3)
            each.expect_nothing()
    assert number > FEWEST_REQUESTS
