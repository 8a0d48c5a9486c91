"""An agent that knows itself only by a claim code."""

from __future__ import annotations

from pathlib import Path

import pytest

from kici_scaler.agent.protocol import (
    Claim,
    ClaimError,
    ClaimResponse,
    CloseCode,
    Credentials,
    JobStatus,
)
from tests.integration.agent.conftest import StartAgent
from tests.support.scripted_gateway import Line, ScriptedGateway, scripted_gateway

AGENT_ID = "scaler-event-0123456789ab"
CLAIMING = {
    "KICI_AGENT_ID": None,
    "KICI_AGENT_TOKEN": None,
    "KICI_LABELS": None,
    "KICI_SCALER_CLAIM_CODE": "c0de" * 16,
}


def _hand_out(line: Line, url: str) -> Claim:
    claim = line.expect(Claim)
    credentials = Credentials("minted", AGENT_ID, url, ("linux", "cloud"))
    line.send(ClaimResponse(claim.request_id, credentials))
    return claim


def test_the_code_is_exchanged_before_the_agent_registers(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(**CLAIMING)
    line = gateway.accept()
    claim = _hand_out(line, gateway.url)
    greeting = line.welcome()
    line.start("sh", "-c", "env; cat /proc/$PPID/environ")
    result = line.finish()

    assert claim.claim_code == "c0de" * 16
    assert (greeting.agent_id, greeting.token) == (AGENT_ID, "minted")
    assert greeting.labels[:2] == ("linux", "cloud")
    assert result.status is JobStatus.SUCCEEDED
    assert "c0de" * 16 not in "".join(line.output())
    assert "c0de" * 16 not in Path(f"{agent.state_dir}/state.json").read_text()
    assert agent.exit_code() == 0


def test_a_code_is_redeemed_once_however_often_the_agent_reconnects(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent(**CLAIMING)
    first = gateway.accept()
    _hand_out(first, gateway.url)
    first.welcome()
    first.cut()
    greeting = gateway.accept().welcome()
    assert (greeting.connection, greeting.resume_token) == (2, "resume-1")


def test_the_answer_may_name_another_gateway(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    with scripted_gateway() as other:
        start_agent(**CLAIMING)
        line = gateway.accept()
        _hand_out(line, other.url)
        assert line.closed() == 1000
        assert other.accept().welcome().agent_id == AGENT_ID


@pytest.mark.parametrize("error", list(ClaimError))
def test_a_worthless_code_ends_the_agent(
    gateway: ScriptedGateway, start_agent: StartAgent, error: ClaimError
) -> None:
    agent = start_agent(**CLAIMING)
    line = gateway.accept()
    line.send(ClaimResponse(line.expect(Claim).request_id, error=error))

    assert agent.exit_code() == 3
    assert error in agent.log()


def test_a_gateway_that_cannot_tell_is_asked_again(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(**CLAIMING)
    first = gateway.accept()
    first.send(ClaimResponse(first.expect(Claim).request_id, error="internal failure"))
    first.closed()
    second = gateway.accept()
    assert _hand_out(second, gateway.url).claim_code == "c0de" * 16
    assert second.welcome().agent_id == AGENT_ID
    assert "internal failure" in agent.log()


def test_an_answer_to_another_question_is_no_answer(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent(**CLAIMING)
    line = gateway.accept()
    claim = line.expect(Claim)
    line.send(ClaimResponse("another", error=ClaimError.INVALID))
    credentials = Credentials("minted", AGENT_ID, gateway.url, ())
    line.send(ClaimResponse(claim.request_id, credentials))
    assert line.welcome().token == "minted"


def test_a_refused_claim_that_closes_the_connection_is_final(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(**CLAIMING)
    line = gateway.accept()
    line.expect(Claim)
    line.close(CloseCode.REFUSED, "no such claim")
    assert agent.exit_code() == 3


def test_an_answer_that_names_no_gateway_ends_the_agent(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(**CLAIMING)
    _hand_out(gateway.accept(), "http://not-a-websocket")
    assert agent.exit_code() == 2
    assert "http://not-a-websocket" in agent.log()


def test_another_process_with_the_same_code_goes_on_as_the_same_agent(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    first = start_agent(**CLAIMING)
    line = gateway.accept()
    _hand_out(line, gateway.url)
    line.welcome()
    first.kill()
    start_agent(**CLAIMING)
    greeting = gateway.accept().welcome()
    assert (greeting.agent_id, greeting.connection) == (AGENT_ID, 2)
    assert (greeting.token, greeting.resume_token) == (None, "resume-1")


def test_another_code_is_another_agent_whatever_lies_in_the_folder(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    first = start_agent(**CLAIMING)
    line = gateway.accept()
    _hand_out(line, gateway.url)
    line.welcome()
    line.start("true")
    line.finish()
    first.exit_code()
    second = start_agent(**{**CLAIMING, "KICI_SCALER_CLAIM_CODE": "0ther" * 12})
    line = gateway.accept()
    assert _hand_out(line, gateway.url).claim_code == "0ther" * 12
    assert line.welcome().connection == 1
    assert not (second.state_dir / "result.json").exists()
