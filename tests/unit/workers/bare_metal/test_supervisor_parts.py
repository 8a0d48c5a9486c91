"""The supervisor's parts that need no agent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from workers.bare_metal.supervisor import cgroups, files, processes
from workers.bare_metal.supervisor.fence import Fence
from workers.bare_metal.supervisor.folder import AGENT_ID, Root
from workers.bare_metal.supervisor.output import Output
from workers.bare_metal.supervisor.processes import Identity, Seen
from workers.bare_metal.supervisor.refusal import Refused


def _seen(pid: int, parent: int) -> Seen:
    return Seen(Identity(pid, 1, "boot"), "S", parent, pid)


def test_descendants_are_found_at_any_depth_and_ancestors_up_to_the_first() -> None:
    table = {each.pid: each for each in map(_seen, [1, 10, 11, 12, 20], [0, 1, 10, 11, 1])}

    assert {each.pid for each in processes.descendants({10}, table)} == {11, 12}
    assert processes.ancestors(12, table) == {12, 11, 10, 1}


def test_a_process_is_read_whatever_its_name(tmp_path: Path) -> None:
    odd = tmp_path / ") S 1 1 (x"
    odd.symlink_to("/bin/sleep")
    pid = os.posix_spawn(str(odd), [str(odd), "60"], {})
    try:
        seen = processes.look(pid)
        assert seen is not None
        assert (seen.pid, seen.parent) == (pid, os.getpid())
        assert abs(processes.started_at(seen.identity) - time.time()) < 60
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_marks_are_read_from_the_environment_a_process_was_started_with() -> None:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {"A": "1", "B": "x=y"})
    try:
        table = processes.table()
        found = processes.marked("B", "x=y", table)
        assert {each.pid: each_environment for each, each_environment in found.items()} == {
            pid: {"A": "1", "B": "x=y"}
        }
        assert not processes.marked("B", "x", table)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_output_keeps_its_last_part_within_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    output = Output(path, limit=1000)

    for number in range(1000):
        output.write(f"line {number}\n".encode())

    aside = path.with_name("output.log.1")
    sizes = [each.stat().st_size for each in (aside, path)]
    assert 500 <= sum(sizes) <= 1000
    assert files.last_lines([aside, path], 30) == [f"line {number}" for number in range(970, 1000)]


def test_one_piece_larger_than_the_bound_is_cut_to_it(tmp_path: Path) -> None:
    path = tmp_path / "output.log"

    Output(path, limit=1000).write(b"x" * 5000 + b"\nend\n")

    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 1000
    assert files.last_lines([path], 1) == ["end"]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, ["c"]), (3, ["a", "b", "c"]), (9, ["a", "b", "c"])]
)
def test_the_last_lines_span_files(tmp_path: Path, count: int, expected: list[str]) -> None:
    (tmp_path / "1").write_text("a\nb\n")
    (tmp_path / "2").write_text("c\n")

    assert files.last_lines([tmp_path / "1", tmp_path / "2", tmp_path / "3"], count) == expected


def test_a_fence_refuses_every_lower_token(tmp_path: Path) -> None:
    fence = Fence(tmp_path / "name.json")
    fence.require(1)
    fence.raise_to(5)

    fence.require(5, to_start=True)
    fence.require(6, to_start=True)
    with pytest.raises(Refused) as refusal:
        fence.require(4)
    assert refusal.value.code == "not-owner"


def test_a_destroyed_name_refuses_a_start_with_the_same_token_too(tmp_path: Path) -> None:
    fence = Fence(tmp_path / "name.json")
    fence.raise_to(5, ended=True)

    fence.require(5)
    fence.require(6, to_start=True)
    with pytest.raises(Refused) as refusal:
        fence.require(5, to_start=True)
    assert refusal.value.code == "not-owner"


def test_a_lock_file_that_was_replaced_meanwhile_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "name.lock"
    held = files.try_lock(path)
    assert held is not None
    assert files.try_lock(path) is None
    assert files.is_locked(path)

    path.unlink()
    fresh = files.try_lock(path)

    assert fresh is not None
    os.close(held)
    assert files.is_locked(path)
    os.close(fresh)
    assert not files.is_locked(path)


def test_a_lock_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "name.lock"
    held = files.try_lock(path)
    assert held is not None

    with pytest.raises(Refused) as refusal, files.Lock(path, time.monotonic() + 0.1):
        pass

    assert refusal.value.code == "unknown"
    os.close(held)


def test_a_replaced_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        files.write_json(path, {"a": object()})

    assert files.read_json(path) == {"a": 1}
    assert files.read_json(tmp_path / "missing.json") is None
    path.write_text("[1]")
    with pytest.raises(Refused):
        files.read_json(path)


@pytest.mark.parametrize("name", ["..", "", ".x", "a/b", "A", "a" * 64, "a\n"])
def test_what_could_leave_its_folder_is_no_agent_id(name: str) -> None:
    assert not AGENT_ID.fullmatch(name)


def test_folders_that_killed_calls_left_are_named_in_one_place(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert root.folders() == []

    root.folder("b").path.mkdir(parents=True)
    root.folder("a").path.mkdir()

    assert [each.agent_id for each in root.folders()] == ["a", "b"]


def _limits() -> cgroups.Limits:
    return cgroups.Limits({"memory_bytes": 64 << 20, "cpu_millis": 1500, "processes": 40})


def test_limits_on_version_2_are_one_cgroup(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")

    [folder] = cgroups.plan("i.agent", _limits(), tmp_path)
    cgroups.make([folder], _limits())

    assert folder == tmp_path / "kici-scaler/i.agent"
    assert {each.name: each.read_text() for each in folder.iterdir()} == {
        "memory.max": str(64 << 20),
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
        "pids.max": "40",
    }
    for level in (tmp_path, folder.parent):
        assert (level / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"


def test_limits_on_version_1_are_a_cgroup_of_each_controller(tmp_path: Path) -> None:
    for controller in ("memory", "cpu", "pids"):
        (tmp_path / controller).mkdir()

    folders = cgroups.plan("i.agent", _limits(), tmp_path)
    cgroups.make(folders, _limits())

    settings = {each.name: each.read_text() for folder in folders for each in folder.iterdir()}
    assert settings == {
        "memory.limit_in_bytes": str(64 << 20),
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "150000",
        "pids.max": "40",
    }


def test_without_cgroups_nothing_is_planned(tmp_path: Path) -> None:
    assert cgroups.version(tmp_path) is None
    assert cgroups.plan("i.agent", _limits(), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("memory.events", "low 0\noom 1\noom_kill 1\n", True),
        ("memory.events", "low 0\noom 1\noom_kill 0\n", False),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", True),
        ("other", "", False),
    ],
)
def test_the_kernel_says_whether_memory_ran_out(
    tmp_path: Path, name: str, text: str, expected: bool
) -> None:
    (tmp_path / name).write_text(text)

    assert cgroups.was_out_of_memory([str(tmp_path)]) is expected
