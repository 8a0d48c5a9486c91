"""Machines in namespaces: own address, processes, host name, boot id and disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import psutil

from tests.e2e.ssh import init
from tests.support.sshd import Sshd
from tests.support.waiting import eventually

BRIDGE = "kici-br0"
NETWORK = "10.77.0"


def run(*command: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def missing() -> str | None:
    """Why no machine can be made here, or None."""
    if os.geteuid() != 0:
        return "namespaces with addresses of their own can be made by root only"
    needed = ("ip", "nsenter", "unshare", "mount", "ssh-keygen")
    lacking = [each for each in needed if shutil.which(each) is None]
    if not Path("/usr/sbin/sshd").exists():
        lacking.append("sshd")
    return f"not installed: {', '.join(lacking)}" if lacking else None


def make_bridge() -> None:
    """What joins the machines with this one."""
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


def drop_bridge() -> None:
    """It goes with its ports."""
    run("ip", "link", "del", BRIDGE)


class NamespaceMachine(Sshd):
    """A machine of its own, as far as anything on it can tell."""

    def __init__(self, folder: Path, number: int, *, path: str | None = None) -> None:
        self.name = f"m{number}"
        self.address = f"{NETWORK}.{10 + number}"
        self.veth = f"kici-v{number}"
        self._path = path
        super().__init__(folder)
        self.boot_file = folder / "boot_id"

    def _environment(self) -> tuple[str, ...]:
        its = super()._environment()
        return its if self._path is None else (*its, f"PATH={self._path}")

    def start(self) -> NamespaceMachine:
        """Boot, connect, serve."""
        self.boot_file.write_text(f"{uuid.uuid4()}\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        spaces = ["--net", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
        self.process = subprocess.Popen(
            ["unshare", *spaces, sys.executable, init.__file__, self.name, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "log").open("ab"),
        )
        assert self.process.stdout is not None
        told = self.process.stdout.readline()
        assert told == b"prepared\n", (self.folder / "log").read_text()
        self._connect()
        self.serve()
        return self

    @property
    def first(self) -> psutil.Process:
        """Its first process, as this machine sees it."""
        assert self.process is not None
        [found] = psutil.Process(self.process.pid).children()
        return found

    def _connect(self) -> None:
        pid = str(self.first.pid)
        inside = ("nsenter", f"--net=/proc/{pid}/ns/net", "ip")
        peer = ("peer", "name", "eth0", "netns", pid)
        run("ip", "link", "add", self.veth, "type", "veth", *peer)
        run("ip", "link", "set", self.veth, "master", BRIDGE, "up")
        run(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")

    def serve(self) -> None:
        """Start its server; returns once connections are taken."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(b"sshd\n")
        self.process.stdin.flush()
        eventually(self.listens, within=30.0, why=lambda: (self.folder / "log").read_text())

    def kill_sshd(self) -> None:
        """Kill the server and its sessions, and what runs in them; what is detached goes on."""
        servers = [each for each in self.first.children() if each.name() == "sshd"]
        killed = [one for each in servers for one in (each, *each.children(recursive=True))]
        for one in killed:
            _kill(one)
        # Its address is free for the next one only when it is gone.
        psutil.wait_procs(killed, timeout=20)

    def cut(self) -> None:
        """Take its link down: nobody is told, packets vanish."""
        run("ip", "link", "set", self.veth, "down")

    def mend(self) -> None:
        """Take its link up again."""
        run("ip", "link", "set", self.veth, "up")

    def stop(self) -> None:
        """Pull its plug; what is on its disk stays."""
        if self.process is not None:
            everything = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait()
            self.process = None
            psutil.wait_procs(everything, timeout=20)
            subprocess.run(["ip", "link", "del", self.veth], capture_output=True, check=False)

    def reboot(self) -> None:
        """Pull its plug and start it anew."""
        self.stop()
        self.start()

    def processes(self) -> list[psutil.Process]:
        """Everything that runs on it, but for its first process and its server."""
        found = []
        for each in self.first.children(recursive=True):
            try:
                if each.status() != psutil.STATUS_ZOMBIE and each.name() != "sshd":
                    found.append(each)
            except psutil.NoSuchProcess:
                continue
        return found

    def entry(self) -> dict[str, object]:
        """As a `machines` entry, by name."""
        return {**super().entry(), "name": self.name}


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
