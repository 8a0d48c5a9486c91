"""The container backend on a runtime that runs nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kici_scaler.domain.scalers import BackendType, LabelSet, Scaler
from tests.conformance.harness import Harness
from tests.integration.workers.container.pretended_engine import (
    PretendedEngine,
    pretended_engine,
)
from workers.contract import Backend, ComputeRef, SpawnOrder


class PretendedHarness(Harness):
    """The pretended runtime's table is the witness."""

    backend_type = "container"
    kill_rounds = 40

    def __init__(self, folder: Path, engine: PretendedEngine) -> None:
        super().__init__(folder)
        self.engine = engine

    def ambient(self) -> dict[str, str]:
        return {"PATH": "/usr/bin"}

    def label_set(self) -> LabelSet:
        return LabelSet(0, ("linux", "x64"), options={"image": "agents/linux:1"})

    def scaler(self) -> Scaler:
        sets = (self.label_set(),)
        return Scaler("pool", BackendType.CONTAINER, 10, sets, options=self.engine.options)

    def order(self, agent_id: str, token: int = 1, **more: object) -> SpawnOrder:
        made = super().order(agent_id, token, **more)  # type: ignore[arg-type]  # passed on
        return replace(made, options=self.engine.options)

    def ref(self, agent_id: str, token: int) -> ComputeRef:
        return replace(super().ref(agent_id, token), options=self.engine.options)

    def starts(self, agent_id: str) -> int:
        return sum(agent_id in name for name in self.engine.told()["started"])

    def living(self, agent_id: str) -> int:
        return sum(each["status"] == "running" for each in self.engine.containers(agent_id))

    def end(self, agent_id: str) -> None:
        self.engine.end(agent_id, 3)

    def kept(self) -> Iterator[tuple[str, bytes]]:
        for path in self.folder.rglob("*"):
            if path.is_file():
                yield str(path), path.read_bytes()
        yield "the runtime", repr(self.engine.told()).encode()

    def close(self) -> None:
        """Its process ends with the fixture."""


@pytest.fixture
def engine() -> Iterator[PretendedEngine]:
    """A runtime of this test's own; the path of its socket must be short."""
    with (
        tempfile.TemporaryDirectory(prefix="kici-") as folder,
        pretended_engine(Path(folder)) as made,
    ):
        yield made


@pytest.fixture
def harness(engine: PretendedEngine, tmp_path: Path) -> Harness:
    """The backend on it, as the conformance suite takes it."""
    return PretendedHarness(tmp_path, engine)


@pytest.fixture
def backend(harness: Harness) -> Backend:
    """The backend as one worker has it."""
    return harness.open()


@pytest.fixture
def agent_id(harness: Harness) -> str:
    """An agent that does not exist yet."""
    return harness.new_agent_id()
