"""Agents return, over the same gateway or another, and the job goes on."""

from __future__ import annotations

import contextlib
import random

import pytest

from kici_scaler.agent.protocol import (
    CloseCode,
    JobAccepted,
    JobFinishedAck,
    JobOffer,
    JobPhase,
    JobStart,
)
from kici_scaler.domain.spawn import SpawnState
from tests.integration.gateway.house import GatewayProcess, House, job_of, lines_of, log_of
from tests.integration.gateway.played_agent import PlayedAgent, claim_of, played
from tests.support.waiting import eventually


def test_a_dropped_connection_starts_the_absence_clock_and_a_new_one_stops_it(
    shared: House, gateway: GatewayProcess
) -> None:
    order = shared.order(gateway)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job_of(order))
    eventually(lambda: shared.unseen(order.row.agent_id))
    with played(gateway.agents_url, order) as agent:
        agent.register(connection=2, job=claim_of(job_of(order), JobPhase.RUNNING))
        assert not shared.unseen(order.row.agent_id)
        agent.finish(job_of(order))
        agent.expect(JobFinishedAck)
    assert shared.job_state(job_of(order)) == "succeeded"


def test_the_resume_token_lets_an_agent_return_when_its_own_has_expired(
    shared: House, gateway: GatewayProcess
) -> None:
    order = shared.order(gateway)
    with played(gateway.agents_url, order) as agent:
        resume = agent.register().resume_token
    shared.scalar("DELETE FROM agent_tokens WHERE agent_id = :i RETURNING 1", i=order.row.agent_id)
    with played(gateway.agents_url, order) as agent:
        agent.say(agent.greeting(connection=2))
        assert agent.closed() == CloseCode.REFUSED
    with played(gateway.agents_url, order) as agent:
        ack = agent.register(connection=3, resume_token=resume)
        assert ack.resume_token == resume


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same-gateway", "another-gateway"])
def test_the_newest_connection_wins(
    shared: House, gateway: GatewayProcess, second_gateway: GatewayProcess, elsewhere: bool
) -> None:
    order = shared.order(gateway)
    newer_url = (second_gateway if elsewhere else gateway).agents_url
    with played(gateway.agents_url, order) as older, played(newer_url, order) as newer:
        older.register()
        newer.register(connection=2)
        if not elsewhere:
            assert older.closed() == CloseCode.SUPERSEDED
        newer.run_job(job_of(order))
        with played(gateway.agents_url, order) as late:
            late.say(late.greeting(connection=1))
            assert late.closed() == CloseCode.SUPERSEDED
        older.close()
        newer.finish(job_of(order))
        newer.expect(JobFinishedAck)
    assert shared.job_state(job_of(order)) == "succeeded"


def test_a_close_that_comes_late_does_not_make_a_returned_agent_absent(
    shared: House, gateway: GatewayProcess, second_gateway: GatewayProcess
) -> None:
    order, other = shared.order(gateway), shared.order(gateway)
    with (
        played(gateway.agents_url, other) as bystander,
        played(second_gateway.agents_url, order) as newer,
    ):
        bystander.register()
        with played(gateway.agents_url, order) as older:
            older.register()
            newer.register(connection=2)
        bystander.close()
        eventually(lambda: shared.unseen(other.row.agent_id))
        assert not shared.unseen(order.row.agent_id)


def test_flapping_between_two_gateways_a_hundred_times_keeps_the_job_with_the_newest(
    shared: House, gateway: GatewayProcess, second_gateway: GatewayProcess
) -> None:
    order, chance = shared.order(gateway), random.Random(7)
    urls = [gateway.agents_url, second_gateway.agents_url]
    with contextlib.ExitStack() as stack:
        open_ones: list[PlayedAgent] = []
        for number in range(1, 101):
            agent = stack.enter_context(played(urls[number % 2], order))
            agent.register(connection=number)
            open_ones.append(agent)
            while len(open_ones) > 1 and chance.random() < 0.6:
                open_ones.pop(chance.randrange(len(open_ones) - 1)).close()
        newest = open_ones[-1]
        newest.run_job(job_of(order))
        known = "SELECT connection_number FROM agents WHERE agent_id = :i AND unseen_since IS NULL"
        assert shared.scalar(known, i=order.row.agent_id) == 100
        newest.finish(job_of(order))
        newest.expect(JobFinishedAck)
    assert shared.job_state(job_of(order)) == "succeeded"


def test_a_job_that_was_accepted_and_not_handed_over_is_handed_over_again(
    shared: House, gateway: GatewayProcess
) -> None:
    order = shared.order(gateway)
    job = job_of(order)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.expect(JobOffer)
        agent.say(JobAccepted(job))
        shared.await_state(order.row.agent_id, SpawnState.BUSY)
    with played(gateway.agents_url, order) as agent:
        agent.register(connection=2, job=claim_of(job, JobPhase.ACCEPTED))
        assert agent.expect(JobStart).job_id == job


def test_an_acceptance_that_never_arrived_is_asked_for_again(
    shared: House, gateway: GatewayProcess
) -> None:
    order = shared.order(gateway)
    job = job_of(order)
    with played(gateway.agents_url, order) as agent:
        agent.register(job=claim_of(job, JobPhase.ACCEPTED))
        agent.run_job(job)


def test_an_agent_that_lost_its_job_fails_it(shared: House, gateway: GatewayProcess) -> None:
    order = shared.order(gateway)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job_of(order))
    with played(gateway.agents_url, order) as agent:
        agent.register(connection=2)
        shared.await_job(job_of(order), "failed")
    seen = shared.client(gateway).get(f"/v1/requests/{job_of(order)}").json()
    assert "came back without its job" in seen["reason"]


def test_lines_repeated_after_a_return_are_kept_once(
    shared: House, gateway: GatewayProcess, second_gateway: GatewayProcess
) -> None:
    order = shared.order(gateway)
    job = job_of(order)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job)
        agent.log(job, 1, "one")
        agent.log(job, 2, "two")
        eventually(lambda: len(gateway.lines(order.row.agent_id)) == 2)
    with played(second_gateway.agents_url, order) as agent:
        agent.register(connection=2, job=claim_of(job, JobPhase.RUNNING))
        agent.log(job, 2, "two")
        agent.log(job, 3, "three")
        agent.finish(job)
        agent.expect(JobFinishedAck)
    assert [line["message"] for line in second_gateway.lines(order.row.agent_id)] == ["three"]
    client = shared.client(second_gateway)
    assert lines_of(log_of(client, job)) == ["one", "two", "three"]
    story = client.get(f"/v1/agents/{order.row.agent_id}").json()
    assert story["outcome"]["logTail"] == ["one", "two", "three"]


def test_an_agent_is_told_its_scaler_and_that_a_job_comes(
    shared: House, gateway: GatewayProcess
) -> None:
    with played(gateway.agents_url, shared.order(gateway)) as agent:
        ack = agent.register()
    assert ack.pending_dispatch
    assert ack.scaler_managed
    assert not ack.warm_pool
    assert ack.scaler is not None
    assert (ack.scaler["name"], ack.scaler["type"]) == ("local", "bare-metal")
    assert ack.scaler["labelSet"] == ["linux", "demo"]
