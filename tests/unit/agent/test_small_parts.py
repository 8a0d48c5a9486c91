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
from kici_scaler.agent.linux import memory_kills
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


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (Ended(None, 9, 0), "killed by signal 9; the kernel killed 2 of its processes for memory"),
        (Ended(137, None, 0), "the kernel killed 2 of its processes for memory"),
        (Ended(0, None, 0), None),
    ],
)
def test_a_command_that_failed_for_want_of_memory_is_said_to_have(
    ended: Ended, error: str | None
) -> None:
    assert conclude(ended, None, 1, 2, killed_for_memory=2).error == error


def test_what_was_stopped_failed_for_no_other_reason() -> None:
    stopped = Interference(cancelled=True, text="cancelled by the dispatcher")
    assert conclude(Ended(None, 9, 0), stopped, 1, 2, 1).error == stopped.text


@pytest.mark.parametrize(
    ("said", "file"),
    [
        ("0::/a/b\n", "a/b/memory.events"),
        ("0::/on/the/host\n", "memory.events"),
        ("5:cpu:/x\n4:memory:/a\n0::/\n", "memory/a/memory.oom_control"),
        ("4:hugetlb,memory:/on/the/host\n", "memory/memory.oom_control"),
    ],
)
def test_the_kernels_count_is_found_with_every_version_of_control_groups(
    tmp_path: Path, said: str, file: str
) -> None:
    (tmp_path / "cgroup").write_text(said)
    path = tmp_path / "groups" / file
    path.parent.mkdir(parents=True)
    path.write_text("oom_kill_disable 0\noom_kill 3\n")
    assert memory_kills(tmp_path / "cgroup", tmp_path / "groups") == 3


def test_where_nothing_counts_nothing_was_killed(tmp_path: Path) -> None:
    assert memory_kills(tmp_path / "none", tmp_path) == 0
    (tmp_path / "cgroup").write_text("0::/\n")
    assert memory_kills(tmp_path / "cgroup", tmp_path) == 0


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
