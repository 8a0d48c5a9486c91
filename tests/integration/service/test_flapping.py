"""An agent that flaps between two gateways has one adopter, the newest, in whatever order
what they say arrives."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import register
from kici_scaler.service.hello import Hello, Refusal, Refused
from kici_scaler.service.runtime import Runtime
from tests.support.rows import Rows

GATEWAYS = ("gw-1", "gw-2")
FLAPS = 100


@pytest.fixture
def agent(rows: Rows) -> str:
    """A busy agent that was connected once."""
    for name in GATEWAYS:
        rows.gateway(name)
    agent = rows.agent(rows.busy()[0], gateway="gw-1", number=1)
    rows.shift("spawns", agent, deadline_at=3_600.0)
    return agent


def _return(runtime: Runtime, agent: str, number: int) -> bool:
    """Through the gateway whose turn it is; whether it was adopted."""
    hello = Hello(agent, ("linux",), number, resume_is_valid=True)
    answer = register.register(runtime, GATEWAYS[number % 2], hello)
    assert not isinstance(answer, Refused) or answer.why is Refusal.SUPERSEDED
    return not isinstance(answer, Refused)


def _expect_newest(rows: Rows, agent: str, number: int) -> None:
    row = rows.get("agents", agent)
    found = (row["gateway"], row["connection_number"], row["unseen_since"])
    assert found == (GATEWAYS[number % 2], number, None)
    spawn = rows.get("spawns", agent)
    assert (spawn["state"], spawn["adopter"]) == (SpawnState.BUSY, GATEWAYS[number % 2])


@pytest.mark.parametrize("seed", [7, 8])
def test_one_gateways_words_delayed_past_the_others_change_nothing(
    runtime: Runtime, rows: Rows, agent: str, seed: int
) -> None:
    chance = random.Random(seed)
    late: list[int] = []
    for number in range(2, FLAPS + 1):
        skipped = chance.random() < 0.3 and number < FLAPS
        if skipped:
            late.append(number)  # its gateway is slow: the next connection is known before
            continue
        assert _return(runtime, agent, number)
        for old in (*late, number - 1):
            assert not _return(runtime, agent, old)
            assert not register.disconnected(runtime, GATEWAYS[old % 2], agent, old)
        late.clear()
        _expect_newest(rows, agent, number)
    _expect_newest(rows, agent, FLAPS)


def test_all_of_it_at_once_leaves_the_newest(runtime: Runtime, rows: Rows, agent: str) -> None:
    numbers = list(range(2, FLAPS + 1))
    random.Random(7).shuffle(numbers)

    def come_and_go(number: int) -> None:
        _return(runtime, agent, number)
        if number < FLAPS:
            register.disconnected(runtime, GATEWAYS[number % 2], agent, number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come_and_go, numbers))
    _expect_newest(rows, agent, FLAPS)
    assert not register.disconnected(runtime, "gw-2", agent, FLAPS)
    assert register.disconnected(runtime, GATEWAYS[FLAPS % 2], agent, FLAPS)
