"""A connection is not the job: it breaks, the job goes on, nothing is lost or said twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kici_scaler.agent.protocol import (
    CloseCode,
    ErrorNotice,
    JobAccepted,
    JobClaim,
    JobFinished,
    JobFinishedAck,
    JobOffer,
    JobPayload,
    JobPhase,
    JobStart,
    JobStatus,
    Log,
    Register,
    RegisterAck,
)
from kici_scaler.agent.spool import read_result
from tests.integration.agent.conftest import StartAgent
from tests.support.scripted_gateway import Line, ScriptedGateway
from tests.support.waiting import eventually


def _step(folder: Path, number: int) -> None:
    (folder / str(number)).touch()


def _in_steps(folder: Path, steps: int) -> tuple[str, ...]:
    """A command that says a word, and waits for the test before the next."""
    waits = "; ".join(
        f"while [ ! -e {folder}/{number} ]; do sleep 0.02; done; echo word-{number}"
        for number in range(1, steps + 1)
    )
    return ("sh", "-c", f"echo word-0; {waits}")


def _until_said(line: Line, word: str) -> None:
    while word not in line.output():
        line.hear_until(Log)


@pytest.mark.parametrize("how", ["cut", "going-away", "restart", "internal", "superseded"])
def test_the_job_goes_on_while_the_agent_is_away(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path, how: str
) -> None:
    agent = start_agent()
    first = gateway.accept()
    first.welcome()
    first.start(*_in_steps(tmp_path, 2))
    _until_said(first, "word-0")
    codes = {"going-away": 4000, "restart": 1012, "internal": 1011, "superseded": 4001}
    first.cut() if how == "cut" else first.close(codes[how])
    _step(tmp_path, 1)

    second = gateway.accept()
    greeting = second.welcome(resume_token="resume-1")
    _until_said(second, "word-1")
    _step(tmp_path, 2)
    result = second.finish()

    assert (greeting.connection, greeting.resume_token) == (2, "resume-1")
    assert greeting.job == JobClaim("job-1", JobPhase.RUNNING)
    assert result.status is JobStatus.SUCCEEDED
    assert second.output()[-2:] == ["word-1", "word-2"]
    assert agent.exit_code() == 0


def test_what_may_not_have_arrived_is_said_again_with_the_same_number(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    start_agent()
    first = gateway.accept()
    first.welcome()
    first.start(sys.executable, "-c", "import sys; [print(n, 'x' * 1000) for n in range(20_000)]")
    while len(first.logs()) < 20:
        first.hear()
    first.cut()
    first.closed()  # What came before the cut was confirmed, heard or not.
    second = gateway.accept()
    second.welcome()
    second.finish()

    heard = {log.seq: log for log in first.logs()}
    for log in second.logs():
        assert heard.setdefault(log.seq, log) == log
    assert sorted(heard) == list(range(1, len(heard) + 1))
    numbers = [int(text.split()[0]) for seq in sorted(heard) for text in heard[seq].lines]
    assert numbers == list(range(20_000))


def test_the_result_is_repeated_until_it_is_acknowledged(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "exit 4")
    results = [line.hear_until(JobFinished) for _ in range(3)]
    line.cut()
    again = gateway.accept()
    greeting = again.welcome()
    results.append(again.hear_until(JobFinished))
    stored = read_result(agent.state_dir)
    again.send(JobFinishedAck("job-1"))

    assert greeting.job == JobClaim("job-1", JobPhase.FINISHED)
    assert len({each.result for each in results}) == 1
    assert stored is not None
    assert (stored.result, stored.acknowledged) == (results[0].result, False)
    assert agent.exit_code() == 0


def test_an_acknowledgement_of_another_job_means_nothing(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("true")
    line.hear_until(JobFinished)
    line.send(JobFinishedAck("job-2"))
    line.hear_until(JobFinished)
    assert agent.process.poll() is None


def test_a_promise_survives_the_connection_and_the_payload_may_come_later(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    first = gateway.accept()
    first.welcome()
    first.offer()
    first.close(CloseCode.GOING_AWAY)
    second = gateway.accept()
    greeting = second.welcome()
    second.send(JobOffer("job-1", "run-1"))
    assert second.expect(JobAccepted).job_id == "job-1"
    second.send(JobStart("job-1", JobPayload(("true",))))

    assert greeting.job == JobClaim("job-1", JobPhase.ACCEPTED)
    assert second.finish().status is JobStatus.SUCCEEDED


def test_a_command_is_begun_once_however_often_it_is_started(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    start_agent()
    command = ("sh", "-c", f"echo once >> {tmp_path}/runs; sleep 0.3")
    first = gateway.accept()
    first.welcome()
    first.start(*command)
    first.send(JobStart("job-1", JobPayload(command)))
    first.cut()
    second = gateway.accept()
    second.welcome()
    second.send(JobStart("job-1", JobPayload(command)))
    second.finish()

    assert (tmp_path / "runs").read_text() == "once\n"


def test_a_gateway_that_cannot_judge_now_is_asked_again(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    connections = []
    for _ in range(3):
        line = gateway.accept()
        connections.append(line.expect(Register).connection)
        line.send(ErrorNotice("lookup-failed", "the database cannot be reached"))
        line.close(CloseCode.REFUSED_FOR_NOW)
    connections.append(gateway.accept().welcome().connection)

    assert connections == [1, 2, 3, 4]
    assert "the database cannot be reached" in agent.log()


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (CloseCode.REFUSED, 3),
        (CloseCode.TOLD_TO_GO, 0),
        (CloseCode.PROTOCOL_VIOLATION, 4),
    ],
)
def test_an_agent_refused_for_ever_goes_and_takes_its_job_along(
    gateway: ScriptedGateway, start_agent: StartAgent, code: CloseCode, exit_code: int
) -> None:
    agent = start_agent()
    first = gateway.accept()
    first.welcome()
    first.start("sh", "-c", "sleep 300 & sleep 300")
    first.cut()
    second = gateway.accept()
    second.expect(Register)
    second.close(code, "the reason why")

    assert agent.exit_code() == exit_code
    assert "the reason why" in agent.log()
    agent.expect_nothing_left()


def test_messages_of_a_newer_gateway_are_ignored_and_broken_ones_end_the_connection(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    first = gateway.accept()
    first.welcome()
    first.send_text('{"type": "from.the.future", "x": 1}')
    first.send_text('{"type": "job.offer"}')
    assert first.closed() == CloseCode.PROTOCOL_VIOLATION
    gateway.accept().welcome()

    assert "from.the.future" in agent.log()
    assert "job.offer.jobId: missing" in agent.log()


def test_another_process_of_the_agent_reports_the_job_that_died_with_the_first(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    first = gateway.accept()
    first.welcome()
    first.start("sleep", "300")
    eventually(lambda: "job-1 begins" in agent.log())
    agent.kill()
    agent.expect_nothing_left()

    later = start_agent(KICI_AGENT_TOKEN=None)
    second = gateway.accept()
    greeting = second.welcome()
    result = second.finish()

    assert (greeting.connection, greeting.resume_token) == (2, "resume-1")
    assert greeting.job == JobClaim("job-1", JobPhase.FINISHED)
    assert (result.status, result.exit_code) == (JobStatus.ERROR, None)
    assert "restarted" in str(result.error)
    assert later.exit_code() == 0


def test_another_process_of_the_agent_reports_the_result_the_first_could_not(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    first = gateway.accept()
    first.welcome()
    first.start("sh", "-c", "exit 6")
    first.hear_until(JobFinished)
    agent.kill()

    later = start_agent()
    second = gateway.accept()
    second.welcome()
    assert second.finish().exit_code == 6
    assert later.exit_code() == 0
    assert start_agent().exit_code() == 0


def test_another_process_of_the_agent_keeps_the_first_ones_promise(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    first = gateway.accept()
    first.welcome()
    first.offer()
    agent.kill()

    start_agent()
    second = gateway.accept()
    assert second.welcome().job == JobClaim("job-1", JobPhase.ACCEPTED)
    second.send(JobStart("job-1", JobPayload(("true",))))
    assert second.finish().status is JobStatus.SUCCEEDED


def test_an_agent_that_reaches_no_gateway_for_too_long_gives_up(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    agent = start_agent(
        KICI_ORCHESTRATOR_URL="ws://127.0.0.1:9/v1/agents", KICI_AGENT_OFFLINE_MAX="300"
    )
    assert agent.exit_code() == 6
    assert "no gateway was reached" in agent.log()


def test_the_second_welcome_may_bring_another_resume_token(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    for number in (1, 2, 3):
        line = gateway.accept()
        greeting = line.expect(Register)
        expected = None if number == 1 else f"resume-{number - 1}"
        assert greeting.resume_token == expected
        line.send(RegisterAck(greeting.agent_id, f"resume-{number}"))
        line.hear()
        line.close(CloseCode.GOING_AWAY)


def test_another_agent_in_the_same_folder_begins_anew(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    first = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("true")
    line.finish()
    first.exit_code()

    start_agent(KICI_AGENT_ID="scaler-bare-metal-another")
    greeting = gateway.accept().welcome()
    assert (greeting.connection, greeting.resume_token, greeting.job) == (1, None, None)
