"""What a guest prints is kept within bounds; what ends is written down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from workers.firecracker.monitor import BURST_BYTES, BYTES_PER_SECOND, MOST_BYTES, Console
from workers.firecracker.starter import MONITOR


def _kept(folder: Path) -> bytes:
    both = (folder / "console.log.1", folder / "console.log")
    return b"".join(each.read_bytes() for each in both if each.exists())


def test_the_newest_output_is_kept_in_two_files_of_bounded_size(tmp_path: Path) -> None:
    console = Console(tmp_path / "console.log", now=0.0)
    line = b"x" * 99 + b"\n"

    for number in range(4 * MOST_BYTES // len(line)):
        console.write(line, now=float(number))
    console.write(b"the last\n", now=1e9)

    kept = _kept(tmp_path)
    assert MOST_BYTES <= len(kept) <= 2 * MOST_BYTES
    assert kept.endswith(b"the last\n")


def test_a_guest_that_prints_too_fast_is_cut_and_it_is_said_so(tmp_path: Path) -> None:
    console = Console(tmp_path / "console.log", now=0.0)

    for _ in range(4):
        console.write(b"Y" * (BURST_BYTES // 2), now=0.0)
    console.write(b"later", now=1.0)

    kept = _kept(tmp_path)
    assert kept.count(b"Y") == BURST_BYTES
    assert f"{BURST_BYTES} bytes of the console were dropped".encode() in kept
    assert kept.endswith(b"later")


def test_what_may_be_printed_grows_with_time_up_to_a_burst(tmp_path: Path) -> None:
    console = Console(tmp_path / "console.log", now=0.0)
    console.write(b"y" * BURST_BYTES, now=0.0)

    console.write(b"z" * (2 * BYTES_PER_SECOND), now=1.0)

    assert _kept(tmp_path).count(b"z") == BYTES_PER_SECOND


def test_a_full_disk_stops_no_guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(tmp_path / "console.log", now=0.0)

    with Path("/dev/full").open("ab", buffering=0) as full:
        monkeypatch.setattr(console, "_file", full)
        console.write(b"lost", now=0.0)


def _run(home: Path, script: str) -> int:
    order = json.dumps({"command": [sys.executable, "-c", script]})
    command = [sys.executable, "-I", "-S", str(MONITOR), str(home)]
    return subprocess.run(command, input=order, text=True, timeout=60, check=False).returncode


def test_the_end_of_a_grandchild_is_written_down(tmp_path: Path) -> None:
    orphan = "import os; print('hello', flush=True); os.fork() or os._exit(5)"

    assert _run(tmp_path, orphan) == 0

    said = json.loads((tmp_path / "exit.json").read_text())
    assert (said["jailer"], said["vmm"]) == (0, 5)
    assert (tmp_path / "console.log").read_text() == "hello\n"


def test_what_is_marked_as_started_is_never_started_again(tmp_path: Path) -> None:
    assert _run(tmp_path, "print('once')") == 0

    assert _run(tmp_path, "print('twice')") != 0

    assert (tmp_path / "console.log").read_text() == "once\n"


def test_a_program_that_cannot_be_run_is_written_down(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(MONITOR), str(tmp_path)]
    order = json.dumps({"command": ["/nowhere/jailer"]})

    subprocess.run(command, input=order, text=True, timeout=60, check=False)

    assert (
        "jailer cannot be run" in json.loads((tmp_path / "exit.json").read_text())["start_failed"]
    )
