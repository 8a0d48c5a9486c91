"""What the suite needs of a backend besides the backend: a witness, and a compute that obeys."""

from __future__ import annotations

import secrets
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import ClassVar

from kici_scaler.domain.scalers import BackendType, LabelSet, Scaler
from tests.conformance.callers import Caller
from workers.contract import (
    Backend,
    BackendContext,
    ComputeRef,
    Deadline,
    LifecycleEvent,
    SpawnOrder,
)
from workers.machine import local_machine
from workers.registry import open_backend

GROUP = "kici_scaler.conformance"
"""Entry points of this group are harnesses of other packages' backends, by backend type."""

SECONDS = 30.0
"""What a call is given when a test is not about its deadline."""


class Harness(ABC):
    """One backend under test, in a folder of its own.

    `starts` and `living` are the witness: they must not ask the backend.
    """

    backend_type: ClassVar[str]
    kill_rounds: ClassVar[int] = 30
    """How often a caller is killed in the middle of a spawn."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.installation_id = f"test-{secrets.token_hex(4)}"

    @property
    def context(self) -> BackendContext:
        """What a worker would hand to the backend."""
        return BackendContext(
            self.installation_id, local_machine("test-machine"), self.folder, self.ambient()
        )

    def ambient(self) -> dict[str, str]:
        """The environment of the worker."""
        return {}

    def open(self) -> Backend:
        """The backend as a freshly started worker opens it."""
        return open_backend(self.backend_type, self.context)

    @abstractmethod
    def label_set(self) -> LabelSet:
        """What to start: it prints `hello <agent id>` and runs until `end`.

        It behaves as an agent does: it reads its token and keeps no copy of it anywhere.
        """

    @abstractmethod
    def starts(self, agent_id: str) -> int:
        """How often something was ever started for that agent."""

    @abstractmethod
    def living(self, agent_id: str) -> int:
        """How many computes of that agent run now."""

    @abstractmethod
    def end(self, agent_id: str) -> None:
        """Let its compute print `last words` and exit by itself with code 3; return after that."""

    def kill(self, caller: Caller[object], round_number: int) -> None:
        """Kill a process that is in the middle of a call; more of it where a backend has more."""
        caller.signal(signal.SIGKILL)

    @abstractmethod
    def kept(self) -> Iterator[tuple[str, bytes]]:
        """Everything the backend keeps anywhere, as (where, content)."""

    @abstractmethod
    def close(self) -> None:
        """Take away all that is left, also after a failed test."""

    def scaler(self) -> Scaler:
        """A scaler that has the label set."""
        return Scaler("pool", BackendType.BARE_METAL, 10, (self.label_set(),))

    def order(
        self,
        agent_id: str,
        token: int = 1,
        *,
        still_wanted: Callable[[], bool] = lambda: True,
        report: Callable[[LifecycleEvent], None] = lambda _event: None,
    ) -> SpawnOrder:
        """An ordinary order."""
        return SpawnOrder(
            installation_id=self.installation_id,
            scaler="pool",
            agent_id=agent_id,
            lease_token=token,
            label_set=self.label_set(),
            gateway_url="ws://127.0.0.1:1/v1/agents",
            agent_token=f"secret-of-{agent_id}",
            labels=("linux", "x64"),
            job_id=f"job-of-{agent_id}",
            run_id="run-1",
            still_wanted=still_wanted,
            report=report,
        )

    def new_agent_id(self) -> str:
        """An agent id like those that are minted."""
        return f"scaler-{self.backend_type}-{secrets.token_hex(6)}"

    def ref(self, agent_id: str, token: int) -> ComputeRef:
        """The compute of that agent, of which no spawn was recorded."""
        return ComputeRef(self.installation_id, "pool", agent_id, token)

    def elsewhere(self, agent: ComputeRef) -> ComputeRef:
        """The same, as another installation would ask for it."""
        return replace(agent, installation_id="another-installation")


def soon() -> Deadline:
    """An ordinary deadline."""
    return Deadline.after(SECONDS)


def harnesses() -> dict[str, Callable[[Path], Harness]]:
    """Every harness that is known, by backend type."""
    from tests.conformance.bare_metal import BareMetalHarness
    from tests.conformance.bare_metal_ssh import BareMetalSshHarness
    from tests.conformance.null import NullHarness

    own: dict[str, Callable[[Path], Harness]] = {
        each.backend_type: each for each in (NullHarness, BareMetalHarness, BareMetalSshHarness)
    }
    return {**own, **{each.name: each.load() for each in entry_points(group=GROUP)}}
