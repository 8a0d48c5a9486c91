"""Who may not stay on the agent channel, and what an agent can do to itself only."""

from __future__ import annotations

import pytest

from kici_scaler.agent.protocol import (
    MAX_MESSAGE_BYTES,
    Claim,
    ClaimResponse,
    CloseCode,
    ConfigAck,
    ErrorNotice,
    JobFinishedAck,
    JobOffer,
    Register,
    RegisterAck,
    Shutdown,
)
from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import keys, operate
from kici_scaler.service.start import StartOrder
from tests.integration.gateway.house import GatewayProcess, House, job_of
from tests.integration.gateway.played_agent import FACTS, as_text, played
from tests.support.waiting import eventually


@pytest.fixture
def order(shared: House, gateway: GatewayProcess) -> StartOrder:
    """A spawn with a job, made and not registered yet."""
    return shared.order(gateway)


@pytest.mark.parametrize(
    "changes",
    [
        {"token": "wrong"},
        {"token": None},
        {"token": None, "resume_token": "wrong"},
        {"labels": ("linux", "demo", "gpu")},
        {"agent_id": "scaler-bare-metal-000000000000"},
        {"agent_id": "somebody-else"},
        {"protocol": 99},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_is_refused_for_ever(
    gateway: GatewayProcess, order: StartOrder, changes: dict[str, object]
) -> None:
    with played(gateway.agents_url, order) as agent:
        agent.say(agent.greeting(**changes))
        assert agent.closed() == CloseCode.REFUSED


def test_another_agents_token_is_refused(shared: House, gateway: GatewayProcess) -> None:
    first, second = shared.order(gateway), shared.order(gateway)
    with played(gateway.agents_url, first) as agent:
        agent.say(agent.greeting(token=second.agent_token))
        assert agent.closed() == CloseCode.REFUSED


def test_an_agent_that_no_scaler_made_needs_a_key_that_is_known(gateway: GatewayProcess) -> None:
    with played(gateway.agents_url) as agent:
        token = keys.new_token(KeyScope.AGENT)
        agent.say(Register(1, "static-1", ("linux",), 1, FACTS, token=token))
        assert "no scaler" in agent.expect(ErrorNotice).message
        assert agent.closed() == CloseCode.REFUSED


def test_one_that_is_being_torn_down_is_told_to_go(
    shared: House, gateway: GatewayProcess, order: StartOrder
) -> None:
    operate.destroy(shared.runtime, order.row.agent_id, actor="test")
    with played(gateway.agents_url, order) as agent:
        agent.say(agent.greeting())
        assert agent.closed() == CloseCode.TOLD_TO_GO


def test_a_connected_one_is_told_to_go_and_closed_if_it_stays(
    shared: House, gateway: GatewayProcess, order: StartOrder
) -> None:
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.expect(JobOffer)
        operate.destroy(shared.runtime, order.row.agent_id, actor="test")
        assert agent.expect(Shutdown).reason == "shutdown"
        assert agent.closed(within=20) == CloseCode.TOLD_TO_GO


def test_a_claim_is_answered_before_registration(
    gateway: GatewayProcess, order: StartOrder
) -> None:
    with played(gateway.agents_url, order) as agent:
        agent.say(Claim("r1", "code"))
        answer = agent.expect(ClaimResponse)
        assert answer.request_id == "r1"
        assert answer.error is not None
        assert agent.register().agent_id == order.row.agent_id


@pytest.mark.parametrize(
    "said",
    [
        "not json",
        "[]",
        "{}",
        as_text(type="register"),
        as_text(type="config.ack"),
        as_text(type="no-such-message"),
        b"\x00\x01",
    ],
)
def test_what_is_no_registration_ends_the_connection(
    gateway: GatewayProcess, said: str | bytes
) -> None:
    with played(gateway.agents_url) as agent:
        agent.say_text(said)
        assert agent.closed() == CloseCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    "changes",
    [
        {"connection": 0},
        {"connection": 1 << 63},
        {"labels": ("linux\x00",)},
        {"agent_id": "scaler-\x00"},
        {"labels": tuple(f"l{n}" for n in range(500))},
    ],
    ids=["connection-0", "connection-2^63", "nul-label", "nul-id", "many-labels"],
)
def test_a_registration_beyond_bounds_ends_the_connection(
    gateway: GatewayProcess, order: StartOrder, changes: dict[str, object]
) -> None:
    with played(gateway.agents_url, order) as agent:
        agent.say(agent.greeting(**changes))
        assert agent.closed() == CloseCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize("said", ["junk", as_text(type="log", jobId="job-1")])
def test_a_registered_agent_that_breaks_the_protocol_is_closed(
    gateway: GatewayProcess, order: StartOrder, said: str
) -> None:
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.say_text(said)
        assert agent.closed() == CloseCode.PROTOCOL_VIOLATION


def test_a_message_that_is_too_large_ends_the_connection(
    gateway: GatewayProcess, order: StartOrder
) -> None:
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.say_text("x" * (MAX_MESSAGE_BYTES + 1))
        assert agent.closed() == 1009


def test_a_message_of_a_newer_agent_is_passed_over(
    gateway: GatewayProcess, order: StartOrder
) -> None:
    with played(gateway.agents_url, order) as agent:
        agent.say(agent.greeting())
        agent.expect(RegisterAck)
        agent.say_text(as_text(type="from.the.future", x=1))
        agent.say(ConfigAck())
        assert agent.expect(JobOffer).job_id == job_of(order)


def test_text_that_no_database_takes_does_not_stop_a_result(
    shared: House, gateway: GatewayProcess, order: StartOrder
) -> None:
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job_of(order))
        agent.log(job_of(order), 1, "zero \x00 byte", '{"message": "half \\ud800 pair"}')
        agent.finish(job_of(order), error="zero \x00 byte")
        agent.expect(JobFinishedAck)
    assert shared.job_state(job_of(order)) == "succeeded"
    eventually(lambda: len(gateway.lines(order.row.agent_id)) == 2)


def test_the_result_of_a_job_of_another_agent_changes_nothing(
    shared: House, gateway: GatewayProcess
) -> None:
    first, second = shared.order(gateway), shared.order(gateway)
    with (
        played(gateway.agents_url, first) as victim,
        played(gateway.agents_url, second) as rogue,
    ):
        for agent, order in ((victim, first), (rogue, second)):
            agent.register()
            agent.run_job(job_of(order))
        rogue.finish(job_of(first))
        rogue.expect(JobFinishedAck)
        assert shared.job_state(job_of(first)) == "running"
        assert shared.state(first.row.agent_id) is SpawnState.BUSY


def test_a_result_of_no_known_job_ends_the_connection(
    gateway: GatewayProcess, order: StartOrder
) -> None:
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job_of(order))
        agent.finish("no-such-job")
        assert agent.closed() == CloseCode.PROTOCOL_VIOLATION


def test_a_flooding_agent_delays_only_itself(shared: House, gateway: GatewayProcess) -> None:
    first, second = shared.order(gateway), shared.order(gateway)
    with (
        played(gateway.agents_url, first) as flooder,
        played(gateway.agents_url, second) as quiet,
    ):
        flooder.register()
        flooder.run_job(job_of(first))
        for seq in range(1, 1_500):
            flooder.log(job_of(first), seq, "x")
        quiet.register()
        quiet.run_job(job_of(second))
        quiet.finish(job_of(second))
        quiet.expect(JobFinishedAck, within=3)
        flooder.finish(job_of(first))
        flooder.expect(JobFinishedAck)
