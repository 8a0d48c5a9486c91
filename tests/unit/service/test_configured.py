"""Once an agent holds what it was told, its machine is asked to say it no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import register
from kici_scaler.service.hello import Welcome
from kici_scaler.service.ports import NoHints, Place
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.agents import SpawnFacts

AGENT = "scaler-firecracker-0123456789ab"


class _Hints(NoHints):
    """Keeps where somebody was asked to look."""

    def __init__(self) -> None:
        self.looks: list[tuple[Place, list[str]]] = []

    def inspect(self, place: Place, agent_ids: Sequence[str]) -> None:
        self.looks.append((place, list(agent_ids)))


def _looks_after(spawn: SpawnFacts | None) -> list[tuple[Place, list[str]]]:
    hints = _Hints()
    nothing: Any = None
    welcome = Welcome(AGENT, SpawnState.IDLE, (), (), False, None, None, spawn)
    register.configured(Runtime(nothing, "gateway", hints=hints), welcome)
    return hints.looks


def _spawn(backend_type: str) -> SpawnFacts:
    return SpawnFacts(
        SpawnState.BOOTING, "vms", backend_type, (), (), (), False, None, None, 1, "m1"
    )


def test_the_worker_of_a_microvms_machine_is_asked_to_look_after_it() -> None:
    assert _looks_after(_spawn("firecracker")) == [(Place("firecracker", "m1"), [AGENT])]


@pytest.mark.parametrize("spawn", [None, _spawn("container"), _spawn("event")])
def test_nobody_is_asked_where_nothing_is_to_be_cleared(spawn: SpawnFacts | None) -> None:
    assert _looks_after(spawn) == []
