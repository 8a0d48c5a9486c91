"""Cancelled, told to go, stopped by a signal: the job ends and is reported."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from kici_scaler.agent.protocol import (
    CloseCode,
    JobCancel,
    JobFinished,
    JobFinishedAck,
    JobStatus,
    Leaving,
    Log,
    Shutdown,
)
from kici_scaler.agent.spool import read_result
from tests.integration.agent.conftest import StartAgent
from tests.support.scripted_gateway import Line, ScriptedGateway
from tests.support.waiting import eventually

POLITE = "trap 'echo tidied; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
LEISURELY = {"KICI_AGENT_STOP_GRACE": "30000", "KICI_AGENT_FAREWELL_TIMEOUT": "30000"}
"""For a command that ends by itself and a result that is taken, however slow the machine is."""
STUBBORN = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
children = [subprocess.Popen(["sleep", "300"], start_new_session=new) for new in (False, True)]
print("ready", flush=True)
while True: signal.pause()
"""


def _until_ready(line: Line) -> None:
    while "ready" not in line.output():
        line.hear_until(Log)


def test_a_cancelled_command_may_tidy_up(gateway: ScriptedGateway, start_agent: StartAgent) -> None:
    agent = start_agent(KICI_AGENT_CANCEL_GRACE="20000")
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", POLITE)
    _until_ready(line)
    line.send(JobCancel("job-1", "no longer needed"))
    result = line.finish()

    assert result.status is JobStatus.CANCELLED
    assert (result.exit_code, result.error) == (9, "no longer needed")
    assert line.output()[-1] == "tidied"
    assert agent.exit_code() == 0


def test_a_cancelled_command_that_does_not_end_is_killed_with_all_it_started(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start(sys.executable, "-c", STUBBORN)
    _until_ready(line)
    line.send(JobCancel("job-1", "no longer needed"))
    result = line.hear_until(JobFinished).result

    assert (result.status, result.signal) == (JobStatus.CANCELLED, signal.SIGKILL)
    assert {each.pid for each in agent.processes()} == {agent.pid, agent.keeper().pid}
    line.send(JobFinishedAck("job-1"))
    assert agent.exit_code() == 0


def test_children_of_a_cancelled_command_get_the_same_grace(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent(KICI_AGENT_CANCEL_GRACE="20000")
    line = gateway.accept()
    line.welcome()
    # The leader dies of TERM at once, its child needs a moment for what it does then.
    child = "trap 'sleep 0.4; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    line.start("sh", "-c", f'sh -c "{child}" & wait')
    _until_ready(line)
    line.send(JobCancel("job-1", "no longer needed"))
    line.finish()

    assert line.output()[-1] == "saved"


def test_a_job_cancelled_before_its_payload_came_is_reported_cancelled(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.offer()
    line.send(JobCancel("job-1", "no longer needed"))
    result = line.finish()

    assert (result.status, result.error) == (JobStatus.CANCELLED, "no longer needed")
    assert result.started_at == result.finished_at
    assert agent.exit_code() == 0


def test_shutdown_ends_the_job_reports_it_and_the_agent_says_goodbye(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(**LEISURELY)
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", POLITE)
    _until_ready(line)
    line.send(Shutdown("the machine is being drained"))
    result = line.finish()
    line.closed()

    assert (result.status, result.exit_code) == (JobStatus.CANCELLED, 9)
    assert line.heard[-1] == Leaving("shutdown")
    assert agent.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_agent_cancels_its_job_reports_and_leaves(
    gateway: ScriptedGateway, start_agent: StartAgent, number: signal.Signals
) -> None:
    agent = start_agent(**LEISURELY)
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", POLITE)
    _until_ready(line)
    agent.signal(number)
    result = line.finish()
    line.closed()

    assert (result.status, result.error) == (JobStatus.CANCELLED, "the agent was stopped")
    assert line.heard[-1] == Leaving("signal")
    assert agent.exit_code() == 0
    agent.expect_nothing_left()


def test_a_stopped_agent_without_a_job_leaves_at_once(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(**LEISURELY)
    line = gateway.accept()
    line.welcome(warm_pool=True)
    agent.signal(signal.SIGTERM)
    assert line.closed() == 1000
    assert line.heard[-1] == Leaving("signal")
    assert agent.exit_code() == 0


def test_a_stopped_agent_that_reaches_no_gateway_leaves_at_once(
    start_agent: StartAgent,
) -> None:
    agent = start_agent(
        KICI_ORCHESTRATOR_URL="ws://127.0.0.1:9/v1/agents",
        KICI_AGENT_RECONNECT_BASE="600000",
        KICI_AGENT_RECONNECT_MAX="600000",
    )
    eventually(lambda: "disconnected" in agent.log(), 20)
    agent.signal(signal.SIGTERM)
    assert agent.exit_code() == 0


def test_a_stopped_agent_whose_result_nobody_takes_leaves_it_in_the_spool(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", POLITE)
    _until_ready(line)
    agent.signal(signal.SIGTERM)
    line.closed()

    assert agent.exit_code() == 5
    assert line.heard[-1] == Leaving("signal")
    stored = read_result(agent.state_dir)
    assert stored is not None
    assert (stored.result.status, stored.acknowledged) == (JobStatus.CANCELLED, False)


def test_a_stopped_agent_goes_on_trying_to_report_when_the_connection_is_lost(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(
        **LEISURELY, KICI_AGENT_RECONNECT_BASE="600000",
        KICI_AGENT_RECONNECT_MAX="600000",
    )  # fmt: skip
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", POLITE)
    _until_ready(line)
    line.cut()
    eventually(lambda: "disconnected" in agent.log())
    agent.signal(signal.SIGTERM)
    again = gateway.accept()
    again.welcome()

    assert again.finish().status is JobStatus.CANCELLED
    assert agent.exit_code() == 0


def test_an_agent_whose_compute_is_being_destroyed_ends_its_job(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(**LEISURELY)
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", POLITE)
    _until_ready(line)
    line.close(CloseCode.TOLD_TO_GO, "destroyed by an operator")

    assert agent.exit_code() == 0
    stored = read_result(agent.state_dir)
    assert stored is not None
    assert (stored.result.status, stored.result.error) == (
        JobStatus.CANCELLED,
        "destroyed by an operator",
    )
    agent.expect_nothing_left()


def test_a_backend_that_stops_an_agent_in_its_own_time_finds_the_result(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    """The defaults: TERM to the agent's group, five seconds, then KILL."""
    agent = start_agent(
        KICI_AGENT_STOP_GRACE=None, KICI_AGENT_FAREWELL_TIMEOUT=None, KICI_AGENT_CANCEL_GRACE=None
    )
    line = gateway.accept()
    line.welcome()
    line.start(sys.executable, "-c", STUBBORN)
    _until_ready(line)
    line.cut()
    agent.signal(signal.SIGTERM)

    eventually(lambda: read_result(agent.state_dir), within=5.0)
    assert agent.exit_code() == 5
    agent.expect_nothing_left()
