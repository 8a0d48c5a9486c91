"""Files that make a bridge survive a reboot."""

from __future__ import annotations

import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.conformance.harness import soon
from workers.errors import NotDone
from workers.firecracker import persistence
from workers.firecracker.commands import network_of
from workers.firecracker.persistence import Files
from workers.firecracker.settings import Bridge


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The files of the default bridge, below the test's folder."""
    return Files("kici-br0", tmp_path)


def test_the_boot_script_is_the_command_with_every_word_quoted() -> None:
    odd = Bridge(name="kici-br0", table="kici")

    text = persistence.script_text(odd, None, ("/opt/my tools/kici-scaler",))

    assert text.startswith("#!/bin/sh\n")
    command = shlex.split(text.splitlines()[-1])
    assert command[:3] == ["exec", "/opt/my tools/kici-scaler", "firecracker"]
    assert command[3:] == [
        "provision", "--bridge", "kici-br0", "--cidr", "10.0.0.1/24", "--table", "kici",
    ]  # fmt: skip
    assert "--host-iface eth1" in persistence.script_text(odd, "eth1", ("k",))


def test_the_unit_runs_once_when_there_is_a_network(files: Files) -> None:
    text = persistence.unit_text(files)

    assert "Type=oneshot\nRemainAfterExit=yes\n" in text
    assert "After=network-online.target" in text
    assert "ExecStart=/usr/local/lib/kici-firecracker/provision-kici-br0.sh\n" in text


def test_the_boot_script_runs_that_command_and_nothing_is_expanded(tmp_path: Path) -> None:
    program = tmp_path / "a program"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "kici-br0").touch()
    script = tmp_path / "script.sh"
    script.write_text(persistence.script_text(Bridge(name="kici-*"), "eth*", (str(program),)))

    ran = subprocess.run(
        ["/bin/sh", str(script)], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert ran.stdout.split("\n")[:-1] == [
        "firecracker", "provision", "--bridge", "kici-*", "--cidr", "10.0.0.1/24",
        "--table", "kici", "--host-iface", "eth*",
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_has_nothing_to_say_against_the_unit(files: Files) -> None:
    files.script.parent.mkdir(parents=True)
    files.script.write_text(persistence.script_text(Bridge(), None, ("/bin/true",)))
    files.script.chmod(0o755)
    files.unit.parent.mkdir(parents=True)
    own = persistence.unit_text(files).replace("ExecStart=/", f"ExecStart={files.root}/")
    files.unit.write_text(own)

    judged = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(files.unit)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (judged.returncode, judged.stderr) == (0, "")


def test_network_manager_is_told_beside_what_others_tell_it(files: Files) -> None:
    assert not persistence.write_drop_in(files)
    files.drop_in.parent.mkdir(parents=True)

    assert persistence.write_drop_in(files)
    assert not persistence.write_drop_in(files)
    assert "unmanaged-devices+=interface-name:kici-br0;" in files.drop_in.read_text()


def test_script_and_unit_are_written_and_enabled_but_not_started(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(persistence, "_systemctl", lambda words, _deadline: asked.append(words))

    persistence.persist(Bridge(), files, None, soon())

    assert asked == [["daemon-reload"], ["enable", "kici-fc-net-kici-br0.service"]]
    assert stat.S_IMODE(files.script.stat().st_mode) == 0o755
    assert files.unit.is_file()
    assert persistence.forget(files, soon())
    assert not files.script.exists()
    assert not persistence.forget(files, soon())


def test_without_systemd_it_says_what_to_do(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(NotDone, match="no systemd"):
        persistence.persist(Bridge(), files, None, soon())


@pytest.mark.parametrize("cidr", ["10.0.0.0/24", "10.0.0.1/24"])
def test_the_network_may_be_named_by_the_bridges_own_address(cidr: str) -> None:
    assert network_of(cidr) == Bridge().network
    assert network_of("10.0.0.9/24").gateway == "10.0.0.9"
