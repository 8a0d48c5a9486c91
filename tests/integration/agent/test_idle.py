"""An agent that nobody wants goes; how long it waits depends on what it was told."""

from __future__ import annotations

import pytest

from kici_scaler.agent.protocol import (
    CloseCode,
    ConfigAck,
    JobAccepted,
    JobOffer,
    Leaving,
    Register,
    RegisterAck,
)
from tests.integration.agent.conftest import StartAgent
from tests.support.scripted_gateway import ScriptedGateway

SHORT, LONG = "250", "60000"


@pytest.mark.parametrize("pending", [False, True])
def test_an_agent_without_a_job_leaves(
    gateway: ScriptedGateway, start_agent: StartAgent, pending: bool
) -> None:
    agent = start_agent(
        KICI_SCALER_IDLE_TIMEOUT=LONG if pending else SHORT,
        KICI_SCALER_PENDING_DISPATCH_TIMEOUT=SHORT if pending else LONG,
    )
    line = gateway.accept()
    line.welcome(pending_dispatch=pending)

    assert line.expect(Leaving).reason == "idle-timeout"
    assert line.closed() == 1000
    assert agent.exit_code() == 0
    agent.expect_nothing_left()


@pytest.mark.parametrize("facts", [{"warm_pool": True}, {"scaler_managed": False}])
def test_a_warm_agent_and_one_no_scaler_made_stay(
    gateway: ScriptedGateway, start_agent: StartAgent, facts: dict[str, bool]
) -> None:
    start_agent(KICI_SCALER_IDLE_TIMEOUT="1", KICI_SCALER_PENDING_DISPATCH_TIMEOUT="1")
    line = gateway.accept()
    line.welcome(**facts)
    with pytest.raises(TimeoutError):
        line.hear(within=0.7)


def test_an_announced_job_keeps_the_agent_past_the_short_time(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent(KICI_SCALER_IDLE_TIMEOUT="1", KICI_SCALER_PENDING_DISPATCH_TIMEOUT=LONG)
    line = gateway.accept()
    line.welcome(pending_dispatch=True)
    with pytest.raises(TimeoutError):
        line.hear(within=0.7)
    line.start("true")
    assert line.finish().exit_code == 0


def test_a_promised_job_keeps_the_agent(gateway: ScriptedGateway, start_agent: StartAgent) -> None:
    start_agent(KICI_SCALER_IDLE_TIMEOUT="400")
    line = gateway.accept()
    greeting = line.expect(Register)
    line.send(RegisterAck(greeting.agent_id, "resume-1"))
    line.send(JobOffer("job-1", "run-1"))
    line.hear_until(JobAccepted)
    with pytest.raises(TimeoutError):
        line.hear(within=1.0)


def test_the_time_does_not_run_while_no_gateway_has_the_agent(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(KICI_SCALER_IDLE_TIMEOUT="1500")
    first = gateway.accept()
    first.welcome()
    first.close(CloseCode.GOING_AWAY)

    second = gateway.accept()
    greeting = second.expect(Register)
    with pytest.raises(TimeoutError):
        second.hear(within=2.0)
    second.send(RegisterAck(greeting.agent_id, "resume-1"))
    second.expect(ConfigAck)
    assert second.expect(Leaving).reason == "idle-timeout"
    assert agent.exit_code() == 0
