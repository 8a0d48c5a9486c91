"""A place where agents of any behaviour are run as processes, and nothing of them is left."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import signal
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from kici_scaler.domain.scalers import Amount, LabelSet
from tests.support.waiting import eventually, processes_of
from workers.bare_metal import BareMetalBackend, open_backend
from workers.contract import (
    BackendContext,
    ComputeRef,
    Deadline,
    ExitCause,
    SpawnedCompute,
    SpawnOrder,
)
from workers.machine import local_machine


def soon() -> Deadline:
    """An ordinary deadline."""
    return Deadline.after(30)


class Site:
    """One host's bare-metal backend; agents are Python programs given as text."""

    def __init__(self, folder: Path, ambient: Mapping[str, str]) -> None:
        self.folder = folder
        self.installation_id = f"test-{secrets.token_hex(4)}"
        self.ambient = {"PATH": os.environ["PATH"], **ambient}
        self.tokens = itertools.count(1)

    @property
    def context(self) -> BackendContext:
        """What the worker hands to the backend."""
        return BackendContext(
            self.installation_id, local_machine("here"), self.folder / "state", self.ambient
        )

    @property
    def backend(self) -> BareMetalBackend:
        """The backend as a new worker opens it."""
        return open_backend(self.context)

    @property
    def root(self) -> Path:
        """Where the supervisor keeps its records."""
        return self.folder / "state/bare-metal"

    def agent_folder(self, agent_id: str) -> Path:
        """Where the supervisor keeps one agent."""
        return self.root / "agents" / agent_id

    def program(self, source: str) -> str:
        """An executable file that runs this source."""
        path = self.folder / f"program-{secrets.token_hex(4)}"
        path.write_text(f"#!{sys.executable} -S\n{textwrap.dedent(source)}")
        path.chmod(0o755)
        return str(path)

    def label_set(self, source: str, **environment: str) -> LabelSet:
        """A label set whose agent is this source."""
        options = {"binaryPath": self.program(source), "env": environment}
        return LabelSet(0, ("linux",), options=options)

    def order(self, label_set: LabelSet, **changes: Any) -> SpawnOrder:
        """An order for a new agent."""
        given: dict[str, Any] = {
            "installation_id": self.installation_id,
            "scaler": "pool",
            "agent_id": f"scaler-bare-metal-{secrets.token_hex(6)}",
            "lease_token": next(self.tokens),
            "label_set": label_set,
            "gateway_url": "ws://127.0.0.1:1/v1/agents",
            "agent_token": "the-secret",
            "limits": Amount(),
            "job_id": "job-1",
            **changes,
        }
        return SpawnOrder(**given)

    def run(self, source: str, **environment: str) -> tuple[str, SpawnedCompute]:
        """Spawn an agent that runs this source; its id and what was made."""
        order = self.order(self.label_set(source, **environment))
        return order.agent_id, self.backend.spawn(order, soon())

    def ref(self, agent_id: str) -> ComputeRef:
        """A newer lease's reference to that agent."""
        return ComputeRef(self.installation_id, "pool", agent_id, next(self.tokens))

    def destroy(self, agent_id: str, deadline: Deadline | None = None) -> None:
        """Destroy it."""
        self.backend.destroy(self.ref(agent_id), deadline or soon())

    def cause(self, agent_id: str) -> ExitCause:
        """How it ended, once it has."""
        cause = eventually(lambda: self.backend.exit_cause(self.ref(agent_id), soon()))
        assert cause is not None
        return cause

    def lines(self, agent_id: str) -> tuple[str, ...]:
        """All it printed."""
        return self.backend.logs(self.ref(agent_id), 1000, soon())

    def printed(self, agent_id: str, line: str) -> None:
        """Wait until it printed that line."""
        eventually(lambda: line in self.lines(agent_id), why=f"never printed {line!r}")

    def record(self, agent_id: str, name: str) -> dict[str, Any]:
        """One of the supervisor's files on an agent."""
        content: dict[str, Any] = json.loads((self.agent_folder(agent_id) / name).read_text())
        return content

    def rewrite(self, agent_id: str, name: str, **changes: object) -> None:
        """Falsify one of the supervisor's files on an agent."""
        changed = {**self.record(agent_id, name), **changes}
        (self.agent_folder(agent_id) / name).write_text(json.dumps(changed))

    def monitor(self, agent_id: str) -> psutil.Process:
        """The monitor's process."""
        return psutil.Process(self.record(agent_id, "monitor.json")["pid"])

    def process(self, agent_id: str) -> psutil.Process:
        """The agent's process."""
        return psutil.Process(self.record(agent_id, "process.json")["pid"])

    def living(self) -> list[psutil.Process]:
        """Every process that agents of this site started, by their environment."""
        return processes_of(self.installation_id)

    def supervisors(self) -> list[psutil.Process]:
        """Every process of a supervisor of this site: commands that go on, and monitors."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if str(self.root) in (process.info["cmdline"] or []):
                found.append(process)
        return found

    def close(self) -> None:
        """Kill whatever a failed test left."""
        for process in [*self._named(), *self.living()]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)

    def _named(self) -> list[psutil.Process]:
        """Every process with an argument that begins with the site's folder."""
        listed = psutil.process_iter(["cmdline"])
        return [
            each
            for each in listed
            if any(word.startswith(str(self.folder)) for word in each.info["cmdline"] or [])
        ]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site of the test's own."""
    made = Site(tmp_path, {})
    yield made
    made.close()
