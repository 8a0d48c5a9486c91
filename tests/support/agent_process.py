"""The reference agent as a process of its own, as a backend starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.waiting import eventually, processes_of

MODULE = (sys.executable, "-m", "kici_scaler.agent")
AGENT_ID = "scaler-bare-metal-0123456789ab"

QUICK = {
    "KICI_AGENT_RECONNECT_BASE": "100",
    "KICI_AGENT_RECONNECT_MAX": "400",
    "KICI_AGENT_CANCEL_GRACE": "600",
    "KICI_AGENT_STOP_GRACE": "600",
    "KICI_AGENT_FAREWELL_TIMEOUT": "600",
    "KICI_AGENT_RESULT_RESEND": "400",
    "KICI_SCALER_IDLE_TIMEOUT": "60000",
}
"""Pauses that would make a test wait, shortened."""


@dataclass
class AgentProcess:
    """A running agent, its spool and its log."""

    process: subprocess.Popen[bytes]
    state_dir: Path
    log_file: Path
    marker: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def exit_code(self, within: float = 60.0) -> int:
        """Wait for its end."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within:g} s:\n{self.log()}") from None

    def log(self) -> str:
        """What it logged so far."""
        return self.log_file.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """`kill -9`, of this process only."""
        self.process.kill()
        self.process.wait()

    def processes(self) -> list[psutil.Process]:
        """Everything alive that was started by this agent or below it, itself included."""
        return processes_of(self.marker)

    def keeper(self) -> psutil.Process:
        """The watchdog of its job."""
        (found,) = [each for each in self.processes() if each.name() == "kici-keeper"]
        return found

    def expect_nothing_left(self, within: float = 10.0) -> None:
        """Wait until no process of it is alive."""
        eventually(
            lambda: not self.processes(),
            within,
            why=lambda: f"left: {[(p.pid, p.name()) for p in self.processes()]}",
        )


def environment(url: str, state_dir: Path, more: Mapping[str, str | None]) -> dict[str, str]:
    """What a backend gives an agent; None removes a variable."""
    given: dict[str, str | None] = {
        **{key: value for key, value in os.environ.items() if not key.startswith("KICI_")},
        **QUICK,
        "KICI_ORCHESTRATOR_URL": url,
        "KICI_AGENT_ID": AGENT_ID,
        "KICI_LABELS": "linux,gpu",
        "KICI_SCALER_MANAGED": "1",
        "KICI_AGENT_TOKEN": "the-token",
        "KICI_AGENT_STATE_DIR": str(state_dir),
        **more,
    }
    return {key: value for key, value in given.items() if value is not None}


@contextlib.contextmanager
def agent_process(
    url: str,
    folder: Path,
    more: Mapping[str, str | None] | None = None,
    *,
    program: tuple[str, ...] = MODULE,
) -> Iterator[AgentProcess]:
    """Start an agent whose spool is `folder/state`; whatever is left of it is killed at the end.

    `more` is added to its environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state_dir, log_file, marker = folder / "state", folder / "agent.log", f"{folder}/mark"
    env = {**environment(url, state_dir, more or {}), "TEST_MARKER": marker}
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            program, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    agent = AgentProcess(process, state_dir, log_file, marker)
    try:
        yield agent
    finally:
        for each in agent.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
