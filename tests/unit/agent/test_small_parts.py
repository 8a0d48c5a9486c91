"""Backoff, results, labels of the machine, the packed file."""

from __future__ import annotations

import io
import os
import re
import tomllib
import zipfile
from pathlib import Path

import pytest

from kici_scaler.agent import AGENT_VERSION
from kici_scaler.agent.build import build_zipapp, content_digest, zipapp_bytes
from kici_scaler.agent.exit import AgentExit
from kici_scaler.agent.facts import facts, self_reported
from kici_scaler.agent.frames import Reader, pack
from kici_scaler.agent.job import Interference, conclude
from kici_scaler.agent.keeper_link import Ended
from kici_scaler.agent.life import window
from kici_scaler.agent.protocol import Facts, JobStatus
from kici_scaler.agent.settings import read_settings
from tests.support.source import ROOT


def test_the_wait_between_connections_doubles_up_to_a_longest() -> None:
    environ = {"KICI_ORCHESTRATOR_URL": "ws://gateway/v1/agents", "KICI_AGENT_ID": "a"}
    settings = read_settings(environ)
    assert [window(attempt, settings) for attempt in (0, 1, 2, 3, 4, 10_000)] == [
        2, 4, 8, 16, 30, 30,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ended", "interference", "status", "error"),
    [
        (Ended(0, None, 0), None, JobStatus.SUCCEEDED, None),
        (Ended(2, None, 0), None, JobStatus.FAILED, None),
        (Ended(None, 9, 0), None, JobStatus.FAILED, "killed by signal 9"),
        (Ended(0, None, 0), Interference(True, "why"), JobStatus.CANCELLED, "why"),
        (Ended(0, None, 0), Interference(False, "late"), JobStatus.FAILED, "late"),
        (
            Ended(None, 9, 2),
            Interference(True, "why"),
            JobStatus.CANCELLED,
            "why; 2 processes could not be killed",
        ),
        (Ended(0, None, 1), None, JobStatus.SUCCEEDED, "1 processes could not be killed"),
    ],
)
def test_what_the_end_of_a_command_makes_of_the_job(
    ended: Ended, interference: Interference | None, status: JobStatus, error: str | None
) -> None:
    result = conclude(ended, interference, 1, 2)
    assert (result.status, result.error) == (status, error)
    assert (result.exit_code, result.signal) == (ended.exit_code, ended.signal)
    assert (result.started_at, result.finished_at) == (1, 2)


def test_an_agent_says_what_its_machine_is_by_every_usual_name() -> None:
    assert self_reported(Facts("linux", "x64", "Host", 1, "0")) == (
        "kici:os:linux", "kici:arch:x64", "kici:arch:amd64", "kici:host:host",
    )  # fmt: skip
    assert facts().pid == os.getpid()


def test_the_agents_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == AGENT_VERSION


def test_messages_to_the_keeper_survive_any_cut() -> None:
    data = pack({"kind": "start", "env": {"A": "ä\udcff"}}) + pack({"kind": "terminate"})
    reader = Reader()
    found = [message for byte in data for message in reader.feed(bytes([byte]))]
    assert [each["kind"] for each in found] == ["start", "terminate"]
    assert found[0]["env"] == {"A": "ä\udcff"}


def test_the_packed_file_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = build_zipapp(tmp_path / "one" / "a.pyz"), build_zipapp(tmp_path / "b.pyz")
    assert first.read_bytes() == second.read_bytes() == zipapp_bytes()
    assert re.fullmatch(r"[0-9a-f]{64}", content_digest())
    assert os.access(first, os.X_OK)
    assert [each.name for each in first.parent.iterdir()] == ["a.pyz"]


def test_the_packed_file_holds_sources_and_the_licence_only() -> None:
    with zipfile.ZipFile(io.BytesIO(zipapp_bytes())) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    assert names == sorted(names)
    assert "websockets/LICENSE" in names
    assert not [name for name in names if not name.endswith((".py", "LICENSE"))]
    assert "kici_scaler/agent/build.py" not in names


def test_exit_codes_are_part_of_the_interface() -> None:
    assert {each.name: each.value for each in AgentExit} == {
        "DONE": 0,
        "INTERNAL": 1,
        "UNUSABLE": 2,
        "REFUSED": 3,
        "VIOLATION": 4,
        "UNREPORTED": 5,
        "UNREACHABLE": 6,
    }
