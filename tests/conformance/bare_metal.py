"""The bare-metal backend under the suite, on this host."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from kici_scaler.domain.scalers import LabelSet
from tests.conformance.callers import Caller
from tests.conformance.harness import Harness
from tests.support.waiting import eventually, processes_of

_AGENT = """\
import os, pathlib
with open(os.environ["WITNESS"], "a") as witness:
    witness.write(os.environ["KICI_AGENT_ID"] + "\\n")
token = pathlib.Path(os.environ["KICI_AGENT_TOKEN_FILE"])
token.unlink()
print("hello", os.environ["KICI_AGENT_ID"], flush=True)
door = os.environ["KICI_AGENT_STATE_DIR"] + "/door"
os.mkfifo(door)
with open(door) as words:
    words.read()
print("last words", flush=True)
raise SystemExit(3)
"""


class BareMetalHarness(Harness):
    """The process table, and a file that each agent signs, are the witness."""

    backend_type = "bare-metal"
    kill_rounds = 24

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._witness = folder / "witness"
        self._witness.touch()
        self._program = folder / "agent.py"
        self._program.write_text(f"#!{sys.executable} -S\n{_AGENT}")
        self._program.chmod(0o700)

    @property
    def root(self) -> Path:
        """Where the supervisor keeps its records."""
        return self.folder / "bare-metal"

    def ambient(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"]}

    def label_set(self) -> LabelSet:
        options = {"binaryPath": str(self._program), "env": {"WITNESS": str(self._witness)}}
        return LabelSet(0, ("linux", "x64"), options=options)

    def starts(self, agent_id: str) -> int:
        return self._witness.read_text().split().count(agent_id)

    def living(self, agent_id: str) -> int:
        marked = processes_of(agent_id)
        return sum(str(self._program) in _arguments(process) for process in marked)

    def end(self, agent_id: str) -> None:
        door = self.root / "agents" / agent_id / "state/door"
        eventually(door.is_fifo, why=f"{agent_id} did not come up")
        door.write_text("go")
        eventually(lambda: not self.living(agent_id), why=f"{agent_id} did not end")

    def kill(self, caller: Caller[object], round_number: int) -> None:
        """Every other time the supervisor that the caller runs is killed with it."""
        helpers = psutil.Process(caller.pid).children(recursive=True) if round_number % 2 else []
        super().kill(caller, round_number)
        for each in helpers:
            each.kill()

    def kept(self) -> Iterator[tuple[str, bytes]]:
        for each in self.folder.rglob("*"):
            if each.is_file():
                yield str(each), each.read_bytes()

    def close(self) -> None:
        for process in processes_of(self.installation_id):
            process.send_signal(signal.SIGKILL)


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
