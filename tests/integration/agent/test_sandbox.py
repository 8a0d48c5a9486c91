"""A command behind bubblewrap, on an agent that shares its machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kici_scaler.agent.protocol import JobCancel, JobStatus, Log
from tests.integration.agent.conftest import StartAgent
from tests.support.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap not installed")

LOOK_AROUND = """
set -u
echo "in $(pwd)"
touch here && echo "writes its folder"
touch "$1/elsewhere" 2>/dev/null || echo "writes nothing else"
test -e "$2/state.json" || echo "no spool"
echo "processes $(ls -d /proc/[0-9]* | wc -l)"
"""


def test_a_walled_command_sees_and_writes_only_what_is_its_own(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    agent = start_agent(KICI_SANDBOX="true")
    line = gateway.accept()
    line.welcome()
    line.start("bash", "-c", LOOK_AROUND, "look", str(Path.home()), str(agent.state_dir))
    assert line.finish().status is JobStatus.SUCCEEDED

    folder, *said, processes = line.output()
    assert Path(folder.removeprefix("in ")).parent == agent.state_dir
    assert said == ["writes its folder", "writes nothing else", "no spool"]
    assert int(processes.split()[1]) < 8
    assert agent.exit_code() == 0
    agent.expect_nothing_left()


def test_a_walled_command_keeps_its_grace(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(KICI_SANDBOX="true", KICI_AGENT_CANCEL_GRACE="20000")
    line = gateway.accept()
    line.welcome()
    polite = "trap 'sleep 0.3; echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    line.start("sh", "-c", polite)
    line.hear_until(Log)
    line.send(JobCancel("job-1", "no longer needed"))

    assert line.finish().status is JobStatus.CANCELLED
    assert line.output() == ["ready", "tidied"]
    assert agent.exit_code() == 0
    agent.expect_nothing_left()


def test_a_walled_command_does_not_outlive_the_agent(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    agent = start_agent(KICI_SANDBOX="true")
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", "setsid sleep 300 & echo ready; sleep 300")
    line.hear_until(Log)
    agent.kill()
    agent.expect_nothing_left()
