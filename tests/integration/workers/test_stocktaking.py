"""Rows against what is really there: leftovers go after a grace, and doubt blames nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from sqlalchemy import Engine

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import inventory
from kici_scaler.service.runtime import Runtime
from tests.support.rows import KIND, MACHINE, Rows
from workers.contract import Backend, ComputeRef, Deadline, FoundCompute
from workers.errors import NotDone, OutcomeUnknown, PartlyListed
from workers.host.stocktaking import Stock, Stocktaker

S = SpawnState
NOW = datetime(2030, 1, 1, tzinfo=UTC)
OLD = NOW - timedelta(seconds=inventory.RECLAIM_GRACE_SECONDS + 1)
YOUNG = NOW - timedelta(seconds=inventory.RECLAIM_GRACE_SECONDS - 1)


@dataclass
class _Machine:
    """What a machine holds, and what was removed from it."""

    found: list[FoundCompute] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failure: Exception | None = None
    stubborn: str = ""

    def inventory(self, installation_id: str, _deadline: Deadline) -> tuple[FoundCompute, ...]:
        assert installation_id == "mine"
        if self.failure is not None:
            raise self.failure
        return tuple(self.found)

    def reclaim(self, agent: ComputeRef, _deadline: Deadline) -> bool:
        assert agent.installation_id == "mine"
        if agent.agent_id == self.stubborn:
            raise OutcomeUnknown("it does not end")
        self.removed.append(agent.agent_id)
        return True

    def holds(self, agent_id: str, *, since: datetime = OLD, running: bool = True) -> None:
        self.found.append(
            FoundCompute("mine", "local", agent_id, None, None, 1, running, since, agent_id, {})
        )


@dataclass
class _Inspector:
    asked: list[str] = field(default_factory=list)

    def __call__(self, agent_ids: Sequence[str]) -> int:
        self.asked += agent_ids
        return len(agent_ids)


@pytest.fixture
def machine() -> _Machine:
    return _Machine()


@pytest.fixture
def inspector() -> _Inspector:
    return _Inspector()


@pytest.fixture
def take_stock(engine: Engine, machine: _Machine, inspector: _Inspector) -> Stocktaker:
    return Stocktaker(
        Runtime(engine, "test"), cast(Backend, machine), "mine", KIND, MACHINE, inspector,
        now=lambda: NOW,
    )  # fmt: skip


def test_compute_that_no_row_stands_for_goes_after_a_grace(
    rows: Rows, machine: _Machine, take_stock: Stocktaker
) -> None:
    machine.holds("scaler-bare-metal-orphan")
    machine.holds("scaler-bare-metal-newborn", since=YOUNG)
    assert take_stock() == Stock(found=2, reclaimed=1)
    assert machine.removed == ["scaler-bare-metal-orphan"]


@pytest.mark.parametrize("state", [S.SPAWNING, S.BOOTING, S.IDLE, S.DESTROYING, S.QUARANTINED])
def test_compute_with_a_row_is_left_alone_whatever_its_state(
    rows: Rows, machine: _Machine, take_stock: Stocktaker, state: SpawnState
) -> None:
    machine.holds(rows.spawn(state))
    assert take_stock().reclaimed == 0
    assert machine.removed == []


def test_a_row_that_appears_after_the_list_protects_its_compute(
    rows: Rows, machine: _Machine, take_stock: Stocktaker
) -> None:
    agent = "scaler-bare-metal-late"
    machine.holds(agent)
    rows.spawn(S.SPAWNING, agent=agent)
    assert take_stock().reclaimed == 0


def test_one_leftover_that_does_not_go_keeps_no_other(
    rows: Rows, machine: _Machine, take_stock: Stocktaker
) -> None:
    for name in ("a", "b", "c"):
        machine.holds(f"scaler-bare-metal-{name}")
    machine.stubborn = "scaler-bare-metal-b"
    assert take_stock().reclaimed == 2


def test_rows_whose_compute_is_not_there_are_looked_at_one_by_one(
    rows: Rows, machine: _Machine, inspector: _Inspector, take_stock: Stocktaker
) -> None:
    there, missing, ended = (rows.spawn(S.BOOTING, backend_ref="{}") for _ in range(3))
    elsewhere = rows.spawn(S.BOOTING, backend_ref="{}", machine_id="m2")
    machine.holds(there)
    machine.holds(ended, running=False)
    assert take_stock().ended == 2
    assert sorted(inspector.asked) == sorted([missing, ended])
    assert elsewhere not in inspector.asked


def test_a_connected_agent_is_not_looked_at(
    rows: Rows, inspector: _Inspector, take_stock: Stocktaker
) -> None:
    rows.gateway()
    agent, _ = rows.busy()
    rows.agent(agent)
    assert take_stock() == Stock()
    assert inspector.asked == []


def test_a_machine_that_cannot_be_listed_blames_nobody(
    rows: Rows, machine: _Machine, inspector: _Inspector, take_stock: Stocktaker
) -> None:
    rows.spawn(S.BOOTING)
    machine.holds("scaler-bare-metal-orphan")
    machine.failure = NotDone("the runtime does not answer")
    assert take_stock() == Stock()
    assert machine.removed == []
    assert inspector.asked == []


def test_a_machine_listed_in_part_is_rid_of_orphans_and_misses_nobody(
    rows: Rows, machine: _Machine, take_stock: Stocktaker, inspector: _Inspector
) -> None:
    rows.spawn(S.BOOTING, backend_ref="{}")
    machine.holds("scaler-bare-metal-orphan")
    machine.failure = PartlyListed("a runtime does not answer", found=machine.found)
    assert take_stock() == Stock(found=1, reclaimed=1)
    assert machine.removed == ["scaler-bare-metal-orphan"]
    assert inspector.asked == []
