"""One job from offer to acknowledgement, on a real agent process."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from kici_scaler.agent.protocol import JobDeclined, JobOffer, JobStatus, Log
from kici_scaler.agent.spool import read_result
from tests.integration.agent.conftest import StartAgent
from tests.support.agent_process import AGENT_ID, AgentProcess
from tests.support.scripted_gateway import ScriptedGateway

TELL_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def test_a_job_is_run_reported_and_the_agent_leaves(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()

    greeting = line.welcome(pending_dispatch=True)
    line.start("sh", "-c", "echo first; echo second; echo wrong >&2")
    result = line.finish()

    assert greeting.agent_id == AGENT_ID
    assert greeting.labels[:2] == ("linux", "gpu")
    assert any(label.startswith("kici:host:") for label in greeting.labels)
    assert (greeting.token, greeting.resume_token) == ("the-token", None)
    assert (greeting.connection, greeting.job) == (1, None)
    assert result.status is JobStatus.SUCCEEDED
    assert (result.exit_code, result.signal, result.error) == (0, None, None)
    assert 0 < result.started_at <= result.finished_at
    assert line.output("stdout") == ["first", "second"]
    assert line.output("stderr") == ["wrong"]
    assert [log.seq for log in line.logs()] == list(range(1, len(line.logs()) + 1))
    assert line.closed() == 1000
    assert agent.exit_code() == 0
    agent.expect_nothing_left()


def test_the_result_is_in_the_spool_before_and_after_it_is_acknowledged(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "exit 7")
    assert line.finish().exit_code == 7
    line.closed()
    agent.exit_code()

    stored = read_result(agent.state_dir)
    assert stored is not None
    assert (stored.agent_id, stored.job_id, stored.run_id) == (AGENT_ID, "job-1", "run-1")
    assert (stored.result.status, stored.result.exit_code) == (JobStatus.FAILED, 7)
    assert stored.acknowledged
    assert sorted(path.name for path in agent.state_dir.iterdir()) == ["result.json", "state.json"]


def test_the_job_sees_its_own_environment_and_no_secret(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    start_agent(FROM_THE_MACHINE="kept", OVERRIDDEN="old")
    line = gateway.accept()
    line.welcome()
    line.start(sys.executable, "-c", TELL_ENVIRONMENT, env={"OVERRIDDEN": "new", "KICI_X": "mine"})
    assert line.finish().exit_code == 0

    (text,) = line.output()
    seen = json.loads(text)
    assert (seen["FROM_THE_MACHINE"], seen["OVERRIDDEN"]) == ("kept", "new")
    assert {name: value for name, value in seen.items() if name.startswith("KICI_")} == {
        "KICI_AGENT_ID": AGENT_ID,
        "KICI_JOB_ID": "job-1",
        "KICI_RUN_ID": "run-1",
        "KICI_LABELS": "linux,gpu",
        "KICI_X": "mine",
    }
    assert "the-token" not in text


def test_the_kernel_shows_no_secret_of_the_agent_either(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "echo ready; sleep 60")
    line.hear_until(Log)
    shown = [Path(f"/proc/{each.pid}/environ").read_bytes() for each in agent.processes()]
    arguments = [Path(f"/proc/{each.pid}/cmdline").read_bytes() for each in agent.processes()]

    assert len(shown) >= 3
    assert not [each for each in shown + arguments if b"the-token" in each]


def test_a_token_file_is_read_and_deleted(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("from-a-file\n")
    start_agent(KICI_AGENT_TOKEN=None, KICI_AGENT_TOKEN_FILE=str(token_file))

    assert gateway.accept().welcome().token == "from-a-file"
    assert not token_file.exists()


def test_the_command_runs_in_a_fresh_folder_and_reads_its_input(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "ls -A; pwd; cat; touch left-behind", stdin="from\nthe payload")
    assert line.finish().exit_code == 0
    line.closed()
    agent.exit_code()

    folder, *text = line.output()
    assert Path(folder).parent == agent.state_dir
    assert text == ["from", "the payload"]
    assert not Path(folder).exists()


def test_without_input_a_command_reads_nothing(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("cat")
    assert line.finish().exit_code == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("no-such-command-anywhere",), "command not found"),
        (("/etc/passwd",), "not allowed to execute"),
        ((), "could not start"),
        (("echo", "nul \0 byte"), "could not start"),
        (("echo", "x" * 200_000), "could not start"),
    ],
)
def test_a_command_that_cannot_be_started_is_an_error_that_says_why(
    gateway: ScriptedGateway, start_agent: StartAgent, command: tuple[str, ...], said: str
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start(*command)
    result = line.finish()

    assert result.status is JobStatus.ERROR
    assert (result.exit_code, result.signal) == (None, None)
    assert said in str(result.error)
    assert agent.exit_code() == 0


def test_a_command_killed_by_a_signal_failed(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "kill -9 $$")
    result = line.finish()

    assert result.status is JobStatus.FAILED
    assert (result.exit_code, result.signal) == (None, signal.SIGKILL)
    assert "signal 9" in str(result.error)


def test_a_command_that_takes_too_long_is_ended(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "sleep 60; true", timeout_seconds=0.3)
    result = line.finish()

    assert result.status is JobStatus.FAILED
    assert result.error == "timed out after 0.3 s"
    assert result.signal == signal.SIGTERM


def test_a_time_limit_of_nothing_is_refused(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("true", timeout_seconds=0)
    assert line.finish().status is JobStatus.ERROR


def test_a_second_job_is_declined_and_the_first_goes_on(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "read x < /dev/null; sleep 0.5")
    line.send(JobOffer("job-2", "run-1"))
    declined = line.expect(JobDeclined)

    assert (declined.job_id, declined.reason) == ("job-2", "busy")
    assert line.finish().exit_code == 0


def test_an_agent_no_scaler_made_takes_one_job_after_another(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent: AgentProcess = start_agent(KICI_SCALER_MANAGED=None)
    line = gateway.accept()
    line.welcome(scaler_managed=False)
    for job_id in ("job-1", "job-2"):
        line.start("sh", "-c", "echo $KICI_JOB_ID; sleep 60 & exit 0", job_id=job_id)
        assert line.finish().exit_code == 0

    assert line.output() == ["job-1", "job-2"]
    assert [log.seq for log in line.logs()] == [1, 1]
    assert agent.process.poll() is None
