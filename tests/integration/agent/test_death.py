"""`kill -9` of anything leaves no process of the job behind."""

from __future__ import annotations

import os
import signal
import sys

import psutil
import pytest

from kici_scaler.agent.protocol import JobFinished, JobStatus, Log
from kici_scaler.agent.spool import read_result
from tests.integration.agent.conftest import StartAgent
from tests.support.agent_process import AgentProcess
from tests.support.scripted_gateway import Line, ScriptedGateway
from tests.support.waiting import eventually

SPREAD = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "301"])
        os._exit(0)

subprocess.Popen(["sleep", "302"])
subprocess.Popen(["sleep", "303"], start_new_session=True)
daemon()
subprocess.Popen(["sh", "-c", "sleep 304 & setsid sleep 305 & wait"])
time.sleep(0.2)
print("ready", flush=True)
while True: signal.pause()
"""
"""A command with a child, a child in a session of its own, a daemon, and grandchildren."""


@pytest.fixture
def spread(gateway: ScriptedGateway, start_agent: StartAgent) -> tuple[AgentProcess, Line]:
    """An agent whose job started processes that try to get away."""
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start(sys.executable, "-c", SPREAD)
    while "ready" not in line.output():
        line.hear_until(Log)
    eventually(lambda: _sleepers(agent) == {"301", "302", "303", "304", "305"})
    return agent, line


def _sleepers(agent: AgentProcess) -> set[str]:
    found = set()
    for each in agent.processes():
        try:
            if each.name() == "sleep":
                found.add(each.cmdline()[-1])
        except (psutil.NoSuchProcess, IndexError):
            continue
    return found


def _leader(agent: AgentProcess) -> psutil.Process:
    """The job's command: the first that its keeper started."""
    return min(agent.keeper().children(), key=lambda each: each.create_time())


def test_of_the_agent(spread: tuple[AgentProcess, Line]) -> None:
    agent, _ = spread
    os.kill(agent.pid, signal.SIGKILL)
    agent.expect_nothing_left()


def test_of_the_agents_whole_group(spread: tuple[AgentProcess, Line]) -> None:
    agent, _ = spread
    os.killpg(agent.pid, signal.SIGKILL)
    agent.expect_nothing_left()


def test_of_the_keeper(spread: tuple[AgentProcess, Line]) -> None:
    agent, line = spread
    os.kill(agent.keeper().pid, signal.SIGKILL)
    result = line.finish()

    assert result.status is JobStatus.ERROR
    assert "watchdog" in str(result.error)
    assert agent.exit_code() == 0
    agent.expect_nothing_left()


def test_of_agent_and_keeper_at_once_takes_the_command_itself(
    spread: tuple[AgentProcess, Line],
) -> None:
    agent, _ = spread
    leader, keeper = _leader(agent), agent.keeper()
    os.kill(agent.pid, signal.SIGSTOP)
    keeper.kill()
    os.kill(agent.pid, signal.SIGKILL)
    eventually(lambda: not _runs(leader))


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_of_the_commands_leader(spread: tuple[AgentProcess, Line]) -> None:
    agent, line = spread
    _leader(agent).kill()
    result = line.hear_until(JobFinished).result

    assert (result.status, result.signal) == (JobStatus.FAILED, signal.SIGKILL)
    assert _sleepers(agent) == set()
    assert read_result(agent.state_dir) is not None


def test_the_end_of_the_command_ends_what_it_left_running(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "sleep 301 & setsid sleep 302 & (setsid sleep 303 &) ; echo done")
    result = line.hear_until(JobFinished).result

    assert result.status is JobStatus.SUCCEEDED
    assert line.output() == ["done"]
    assert _sleepers(agent) == set()


def test_a_stopped_process_is_killed_too(gateway: ScriptedGateway, start_agent: StartAgent) -> None:
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "sleep 301 & kill -STOP $!; echo ready; kill -STOP $$")
    while "ready" not in line.output():
        line.hear_until(Log)
    agent.kill()
    agent.expect_nothing_left()
