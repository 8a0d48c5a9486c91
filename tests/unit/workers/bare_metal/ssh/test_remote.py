"""What runs on a machine before the supervisor does, by any shell."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from workers.bare_metal.ssh import remote
from workers.bare_metal.ssh.remote import MISSING, Artifact

CONTENT = b"print('hello')\n" * 1000
ARTIFACT = Artifact("thing", CONTENT, hashlib.sha256(CONTENT).hexdigest())


def run(line: str, given: bytes = b"", shell: str = "sh") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([shell, "-c", line], input=given, capture_output=True, check=False)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_file_is_placed_once_and_found(tmp_path: Path, shell: str) -> None:
    folder = str(tmp_path / 'deep/it\'s "here"')
    assert run(remote.find(folder, ARTIFACT), shell=shell).returncode == MISSING

    placed = run(remote.place(folder, ARTIFACT), CONTENT, shell)
    found = run(remote.find(folder, ARTIFACT), shell=shell)

    assert placed.stdout == found.stdout
    path = Path(placed.stdout.decode().strip())
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in path.parent.iterdir()] == [ARTIFACT.file_name]


def test_a_spoilt_file_is_not_used_and_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ARTIFACT.file_name).write_bytes(CONTENT[:-1])

    assert run(remote.find(str(tmp_path), ARTIFACT)).returncode == MISSING
    assert run(remote.launch(str(tmp_path), ARTIFACT, "check")).returncode == MISSING
    run(remote.place(str(tmp_path), ARTIFACT), CONTENT)
    assert run(remote.find(str(tmp_path), ARTIFACT)).returncode == 0


def test_what_arrives_damaged_is_not_put_there(tmp_path: Path) -> None:
    done = run(remote.place(str(tmp_path), ARTIFACT), CONTENT[:100])

    assert done.returncode == 1
    assert b"arrived damaged" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    done = run(remote.place(str(tmp_path / "file"), ARTIFACT), CONTENT)

    assert done.returncode == 1
    assert b"cannot be written" in done.stderr


def test_a_command_line_is_one_line(tmp_path: Path) -> None:
    assert "\n" not in remote.launch(str(tmp_path), ARTIFACT, "check")
