"""One instance a folder, and only folders that are its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kici_scaler.embedded.errors import FolderInUse, UnusableFolder
from kici_scaler.embedded.folder import HOLDER, claimed, default_home
from kici_scaler.embedded.secrets import read_or_make_secret, secret_path, write_secret

HOLD = """
import sys
from pathlib import Path
from kici_scaler.embedded.folder import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_claim_names_the_holder(tmp_path: Path) -> None:
    home = tmp_path / "data"
    with (
        claimed(home),
        pytest.raises(FolderInUse, match=rf"\(pid {os.getpid()}, since \d{{4}}-") as refused,
        claimed(home),
    ):
        pass
    assert "--data-dir" in refused.value.hint


def test_a_folder_is_free_again_after_its_holder(tmp_path: Path) -> None:
    for _ in range(2):
        with claimed(tmp_path / "data") as folder:
            assert folder.logs.is_dir()


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    home = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse, match=f"pid {holder.pid}"), claimed(home):
            pass
        holder.kill()
    with claimed(home):
        assert json.loads((home / HOLDER).read_text())["pid"] == os.getpid()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(UnusableFolder, match="is not a folder"), claimed(tmp_path / "data"):
        pass


def test_somebody_elses_files_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("Call me Ishmael.")
    mode = tmp_path.stat().st_mode
    with pytest.raises(UnusableFolder, match="holds something else"), claimed(tmp_path):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["novel.txt"]
    assert tmp_path.stat().st_mode == mode


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UnusableFolder, match="cannot be used"), claimed(tmp_path / "data"):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root's place depends on its home")
def test_data_goes_to_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_home() == tmp_path / "kici-scaler" / "local"


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    first = read_or_make_secret(tmp_path, "api-key")
    assert read_or_make_secret(tmp_path, "api-key") == first
    assert len(first) >= 32
    assert secret_path(tmp_path, "api-key").stat().st_mode & 0o777 == 0o600
    assert read_or_make_secret(tmp_path, "other") != first


def test_a_secret_replaces_whatever_a_crash_left(tmp_path: Path) -> None:
    (tmp_path / ".key.new").write_text("half")
    (tmp_path / "key").write_text("old")
    write_secret(tmp_path / "key", "new")
    assert (tmp_path / "key").read_text() == "new\n"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]
