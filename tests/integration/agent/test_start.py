"""An agent that cannot be one says what is wrong and ends before it connects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kici_scaler.agent.build import build_zipapp
from kici_scaler.agent.protocol import JobStatus
from tests.integration.agent.conftest import StartAgent
from tests.support.agent_process import agent_process
from tests.support.scripted_gateway import ScriptedGateway


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"KICI_ORCHESTRATOR_URL": None}, "KICI_ORCHESTRATOR_URL is not set"),
        ({"KICI_ORCHESTRATOR_URL": "http://gateway"}, "is not a ws:// or wss:// URL"),
        ({"KICI_ORCHESTRATOR_URL": "ws://"}, "is not a ws:// or wss:// URL"),
        ({"KICI_ORCHESTRATOR_URL": "ws://[half"}, "is not a ws:// or wss:// URL"),
        ({"KICI_AGENT_ID": None}, "set KICI_AGENT_ID with a token, or KICI_SCALER_CLAIM_CODE"),
        ({"KICI_SCALER_IDLE_TIMEOUT": "5s"}, "use a whole number of milliseconds"),
        ({"KICI_BACKPRESSURE_MODE": "wait"}, "use pause or drop"),
        ({"KICI_AGENT_STATE_DIR": "/proc/nowhere"}, "KICI_AGENT_STATE_DIR cannot be used"),
        (
            {"KICI_AGENT_TOKEN": None, "KICI_AGENT_TOKEN_FILE": "/"},
            "KICI_AGENT_TOKEN_FILE: cannot read",
        ),
    ],
)
def test_a_wrong_environment_is_told_in_one_line(
    start_agent: StartAgent, wrong: dict[str, str | None], said: str
) -> None:
    agent = start_agent(**wrong)
    assert agent.exit_code() == 2
    (line,) = agent.log().splitlines()
    assert said in line
    assert "the-token" not in line


def test_an_agent_without_a_state_folder_cleans_up_its_own(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    (tmp_path / "tmp").mkdir()
    agent = start_agent(KICI_AGENT_STATE_DIR=None, TMPDIR=str(tmp_path / "tmp"))
    line = gateway.accept()
    line.welcome()
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    line.start("true")
    line.finish()
    assert agent.exit_code() == 0
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_one_file_agent_needs_nothing_but_python(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    packed = build_zipapp(tmp_path / "kici-agent.pyz")
    program = (sys.executable, "-I", "-S", str(packed))
    with agent_process(gateway.url, tmp_path / "agent", program=program) as agent:
        line = gateway.accept()
        line.welcome()
        line.start("echo", "from one file")
        assert line.finish().status is JobStatus.SUCCEEDED
        assert line.output() == ["from one file"]
        assert agent.exit_code() == 0
        agent.expect_nothing_left()


def test_the_one_file_agent_is_executable(gateway: ScriptedGateway, tmp_path: Path) -> None:
    packed = build_zipapp(tmp_path / "bin" / "kici-agent.pyz")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        [packed], env={"PATH": path}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "KICI_ORCHESTRATOR_URL is not set" in ended.stderr
