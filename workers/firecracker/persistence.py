"""Files that make a bridge survive a reboot and keep others' hands off guests' interfaces."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.contract import Deadline
from workers.errors import NotDone
from workers.firecracker.names import ports_of
from workers.firecracker.settings import Bridge

SCRIPTS = Path("usr/local/lib/kici-firecracker")
UNITS = Path("etc/systemd/system")
NETWORK_MANAGER = Path("etc/NetworkManager/conf.d")
DROP_IN = "90-kici-unmanaged.conf"


@dataclass(frozen=True, slots=True)
class Files:
    """Where the files of one bridge lie; `root` is `/` on a real machine."""

    bridge: str
    root: Path = Path("/")

    @property
    def script(self) -> Path:
        """What provisions it at boot."""
        return self.root / SCRIPTS / f"provision-{self.bridge}.sh"

    @property
    def unit(self) -> Path:
        """The unit that runs the script."""
        return self.root / UNITS / f"kici-fc-net-{self.bridge}.service"

    @property
    def drop_in(self) -> Path:
        """What tells NetworkManager to leave the interfaces alone."""
        return self.root / NETWORK_MANAGER / DROP_IN


def script_text(bridge: Bridge, interface: str | None, program: Sequence[str] = ()) -> str:
    """The boot script: the very command that was run, every word quoted.

    Without an interface of its own it finds the default route's at boot, and ends with 1 if
    there is none.
    """
    command = [
        *(program or this_program()),
        "firecracker",
        "provision",
        "--bridge",
        bridge.name,
        "--cidr",
        bridge.network.bridge_address,
        "--table",
        bridge.table,
        *(["--host-iface", interface] if interface else []),
    ]
    return (
        "#!/bin/sh\n"
        "# Written by `kici-scaler firecracker provision --persist`.\n"
        "set -eu\n"
        f"exec {shlex.join(command)}\n"
    )


def unit_text(files: Files) -> str:
    """The unit: once at boot, when there is a network."""
    return (
        "[Unit]\n"
        f"Description=Bridge {files.bridge} for microVMs of kici-scaler\n"
        "Wants=network-online.target\n"
        "After=network-online.target nftables.service\n"
        "\n"
        "[Service]\n"
        "Type=oneshot\n"
        "RemainAfterExit=yes\n"
        f"ExecStart=/{files.script.relative_to(files.root)}\n"
        "\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )


def drop_in_text(bridge: str) -> str:
    """What NetworkManager is told; it adds to what other files say."""
    names = f"interface-name:{bridge};interface-name:{ports_of(bridge)};interface-name:kici-*"
    return f"[keyfile]\nunmanaged-devices+={names}\n"


def write_drop_in(files: Files) -> bool:
    """Keep NetworkManager off; whether a file was changed. Without NetworkManager nothing is.

    Raises:
        NotDone: it cannot be written.
    """
    if not files.drop_in.parent.is_dir():
        return False
    return _write(files.drop_in, drop_in_text(files.bridge), 0o644)


def persist(bridge: Bridge, files: Files, interface: str | None, deadline: Deadline) -> None:
    """Write script and unit, and have systemd start the unit at boot; it is not started now.

    Raises:
        NotDone: a file cannot be written, or systemd refused.
    """
    _write(files.script, script_text(bridge, interface), 0o755)
    _write(files.unit, unit_text(files), 0o644)
    for command in (["daemon-reload"], ["enable", files.unit.name]):
        _systemctl(command, deadline)


def forget(files: Files, deadline: Deadline) -> bool:
    """Take script and unit away; whether there were any. The drop-in stays, it harms nobody.

    Raises:
        NotDone: a file cannot be removed.
    """
    if not files.unit.exists() and not files.script.exists():
        return False
    if shutil.which("systemctl") is not None:
        _systemctl(["disable", files.unit.name], deadline)
    for path in (files.unit, files.script):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise NotDone(f"{path} cannot be removed: {error}") from error
    return True


def this_program() -> list[str]:
    """How this very installation is run, by absolute paths."""
    beside = Path(sys.executable).with_name("kici-scaler")
    if beside.is_file():
        return [str(beside)]
    return [sys.executable, "-m", "kici_scaler.cli.main"]


def _write(path: Path, text: str, mode: int) -> bool:
    try:
        if path.is_file() and path.read_text() == text:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(text)
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        raise NotDone(f"{path} cannot be written: {error}") from error
    return True


def _systemctl(arguments: list[str], deadline: Deadline) -> None:
    try:
        done = subprocess.run(
            ["systemctl", *arguments],
            capture_output=True,
            text=True,
            timeout=max(0.1, deadline.within(30).remaining),
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError as error:
        raise NotDone(
            "there is no systemd here, so nothing can be started at boot",
            hint="leave --persist out, and run the written script at boot in another way",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise NotDone(f"`systemctl {arguments[0]}` did not answer in time") from error
    if done.returncode != 0:
        raise NotDone(f"`systemctl {shlex.join(arguments)}` failed: {done.stderr.strip()}")
