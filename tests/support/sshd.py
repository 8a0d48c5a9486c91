"""A real OpenSSH server of a test's own, with keys made for it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import eventually, free_port
from workers.bare_metal.ssh.target import Target

SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


def program() -> str:
    """The server's program; skips the test where there is none."""
    found = shutil.which("sshd", path=SEARCHED)
    if found is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no sshd here (Debian: openssh-server)")
    return found


def make_key(path: Path) -> str:
    """A new key pair without passphrase; the public half as `<type> <base64>`."""
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(made, check=True, stdin=subprocess.DEVNULL, timeout=30)
    return path.with_suffix(".pub").read_text().strip()


class Sshd:
    """One server on the loopback address, which lets the tests' own user in by one key.

    Attributes:
        folder: keys, configuration and log.
        state: where agents are kept on the "machine".
    """

    address = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self._program = program()
        self.folder = folder
        self.state = folder / "state"
        self.port = free_port()
        self.user = getpass.getuser()
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.host_key = make_key(folder / "host_key")
        self.key_file = folder / "user_key"
        (folder / "authorized").write_text(make_key(self.key_file) + "\n")
        self.config = folder / "sshd_config"
        self.config.write_text(self._configuration())
        self.process: subprocess.Popen[bytes] | None = None

    def _configuration(self) -> str:
        return "\n".join(
            (
                f"ListenAddress {self.address}:{self.port}",
                f"HostKey {self.folder}/host_key",
                f"AuthorizedKeysFile {self.folder}/authorized",
                "PidFile none",
                "UsePAM no",
                "StrictModes no",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "PermitRootLogin yes",
                "MaxStartups 100",
                "UseDNS no",
                "LogLevel VERBOSE",
                # A person's own shell start files are none of the tests' business.
                f"SetEnv {' '.join(self._environment())}",
                "",
            )
        )

    def _environment(self) -> tuple[str, ...]:
        return (f"HOME={self.home}",)

    def start(self) -> Sshd:
        """Serve; returns once connections are taken."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command_line(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        eventually(self.listens, within=20.0, why=lambda: (self.folder / "log").read_text())
        return self

    def command_line(self) -> list[str]:
        """What serves, in the foreground."""
        return [self._program, "-D", "-e", "-f", str(self.config)]

    def listens(self) -> bool:
        """Whether connections are taken."""
        try:
            socket.create_connection((self.address, self.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def sessions(self) -> list[psutil.Process]:
        """Every process below the server: its sessions, and what they run."""
        if self.process is None or self.process.poll() is not None:
            return []
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self) -> None:
        """Kill the server and its sessions; what was detached from them goes on."""
        sessions = self.sessions()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        for each in sessions:
            if each.is_running():
                each.kill()

    def target(self) -> Target:
        """The machine as the scaler file would describe it."""
        return Target.parse(self.entry())

    def entry(self) -> dict[str, object]:
        """The machine as an entry of `machines`."""
        return {
            "address": self.address,
            "port": self.port,
            "user": self.user,
            "keyFile": str(self.key_file),
            "hostKey": self.host_key,
            "stateDir": str(self.state),
        }
