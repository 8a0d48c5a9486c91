"""A job given to an agent that is connected already reaches it at once."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from kici_scaler.agent.protocol import ConfigAck, JobOffer, RegisterAck
from kici_scaler.service import fill, reload
from kici_scaler.service.start import StartOrder
from tests.integration.gateway.house import SCALERS, GatewayProcess, House
from tests.integration.gateway.played_agent import PlayedAgent, played

AT_ONCE = 1.0
"""Seconds; half of what a gateway's own poll would take. The quicker of two counts, as a busy
machine may be slow once."""
POOL = """
    warmPool: { enabled: true, size: 2 }
    labelSets:
      - labels: [linux, demo]
        resources: { cpus: 1, memory: 1Gi }"""


@pytest.fixture
def front(house: House) -> GatewayProcess:
    """The gateway of a house that keeps two agents ready."""
    return house.gateway()


@pytest.fixture
def orders(house: House, front: GatewayProcess, tmp_path: Path) -> list[StartOrder]:
    """The two spawns of the pool, made, without agents."""
    file = tmp_path / "warm.yaml"
    file.write_text(SCALERS.replace("\n    labelSets:\n      - labels: [linux, demo]", POOL))
    reload.apply(house.runtime, reload.read(house.runtime.engine, file), author="test")
    assert fill.fill(house.runtime).spawned == 2
    return house.take()


def _request(house: House, client: httpx.Client) -> str:
    """The job of a request that an agent is ready for."""
    answer = client.post("/v1/requests", json=house.body(house.new_job(), "true")).json()
    assert answer["result"] == "ready", answer
    return str(answer["jobId"])


def _run(agent: PlayedAgent, job: str) -> None:
    assert agent.expect(JobOffer).job_id == job


def test_the_job_is_offered_over_the_open_connection(
    house: House, front: GatewayProcess, orders: list[StartOrder]
) -> None:
    client, waits = house.client(front), []
    for order in orders:
        with played(front.agents_url, order) as agent:
            ack = agent.register()
            assert (ack.warm_pool, ack.pending_dispatch) == (True, False)
            job = _request(house, client)
            asked_at = time.monotonic()
            _run(agent, job)
            waits.append(time.monotonic() - asked_at)
    assert min(waits) < AT_ONCE


def test_a_job_given_before_the_agent_was_ready_for_it_is_offered_once_it_is(
    house: House, front: GatewayProcess, orders: list[StartOrder]
) -> None:
    client = house.client(front)
    for order in orders:
        with played(front.agents_url, order) as agent:
            agent.say(agent.greeting())
            agent.expect(RegisterAck)
            job = _request(house, client)
            agent.say(ConfigAck())
            _run(agent, job)


def test_an_agent_that_comes_back_is_offered_what_it_was_given_while_it_was_away(
    house: House, front: GatewayProcess, orders: list[StartOrder]
) -> None:
    client = house.client(front)
    with played(front.agents_url, orders[0]) as agent:
        agent.register()
        job = _request(house, client)
        _run(agent, job)
    with played(front.agents_url, orders[0]) as agent:
        agent.register(connection=2)
        _run(agent, job)
