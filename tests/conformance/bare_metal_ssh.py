"""The bare-metal backend under the suite, through a real OpenSSH server on this host."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import psutil

from tests.conformance.bare_metal import BareMetalHarness
from tests.conformance.callers import Caller
from tests.support.sshd import Sshd
from workers.bare_metal.backend import on_link
from workers.bare_metal.ssh.link import Link
from workers.contract import Backend


class BareMetalSshHarness(BareMetalHarness):
    """The same witness as for processes of this host, for that is what they are."""

    backend_type = "bare-metal-ssh"
    kill_rounds = 10

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sshd = Sshd(folder / "sshd").start()
        self._links: list[Link] = []

    @property
    def root(self) -> Path:
        return self._sshd.state / "bare-metal"

    def open(self) -> Backend:
        self._links.append(Link(self._sshd.target()))
        return on_link(self.context, self._links[-1])

    def kill(self, caller: Caller[object], round_number: int) -> None:
        """Every other time all sessions are killed with the caller, and what runs in them."""
        sessions = self._sshd.sessions() if round_number % 2 else []
        caller.signal(signal.SIGKILL)
        for each in sessions:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def close(self) -> None:
        for each in self._links:
            each.close()
        super().close()
        self._sshd.stop()
