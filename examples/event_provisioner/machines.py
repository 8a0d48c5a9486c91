"""The machines: one process group each, found again by a mark in its environment.

A real cloud has tags for that. What is kept on disk is what must survive a restart of the
receiver: that a machine was booted, and that an agent's machine must never boot again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import psutil

MARK: Final = "EXAMPLE_MACHINE"
"""Environment variable of everything that runs on a machine; names its folder."""
STOP_SECONDS: Final = 5.0


class Machines:
    """Boots and tears down, both as often as asked, to the same effect as once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def boot(self, agent_id: str, *, gateway_url: str, claim_code: str) -> bool:
        """Boot the machine of an agent, unless it was; False when it was torn down before."""
        home = self._folder / agent_id
        with self._lock:
            if (home / "torn-down").exists():
                return False
            if (home / "booted").exists() or self._processes(home):
                return True
            home.mkdir(parents=True, exist_ok=True)
            self._start(home, gateway_url, claim_code)
            (home / "booted").touch()
            return True

    def tear_down(self, agent_id: str) -> None:
        """End the machine of an agent if there is one, and see that none ever comes."""
        home = self._folder / agent_id
        with self._lock:
            home.mkdir(parents=True, exist_ok=True)
            (home / "torn-down").touch()
        _end(self._processes(home))

    def running(self) -> list[str]:
        """Agents whose machine runs."""
        return [home.name for home in self._folder.iterdir() if self._processes(home)]

    def _start(self, home: Path, gateway_url: str, claim_code: str) -> None:
        inherited = {key: text for key, text in os.environ.items() if not key.startswith("KICI_")}
        with (home / "console.log").open("ab") as console:
            subprocess.Popen(
                [sys.executable, "-m", "kici_scaler.agent"],
                env={
                    **inherited,
                    MARK: str(home),
                    "KICI_ORCHESTRATOR_URL": gateway_url,
                    "KICI_SCALER_CLAIM_CODE": claim_code,
                    "KICI_SCALER_MANAGED": "1",
                    "KICI_AGENT_STATE_DIR": str(home / "state"),
                },
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )

    @staticmethod
    def _processes(home: Path) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == str(home):
                    found.append(process)
        return found


def _end(processes: list[psutil.Process]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        _, processes = psutil.wait_procs(processes, timeout=STOP_SECONDS)
        if not processes:
            return
