"""Real microVMs for these tests; `make e2e-firecracker` brings what they need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.firecracker import (
    HOW,
    REAL,
    FirecrackerHarness,
    network_with_exit,
    opened_harness,
)
from workers.firecracker.backend import FirecrackerBackend

WHY_NOT = "NOT TESTED on real microVMs: run `make e2e-firecracker` as root where there is /dev/kvm"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without real microVMs there is nothing here that the recorder's tests do not show."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not REAL:
            item.add_marker(pytest.mark.skip(reason=WHY_NOT))


def pytest_report_header() -> str:
    """What the microVMs of this run are."""
    return f"microVMs: {HOW}"


@pytest.fixture
def own_net() -> Iterator[None]:
    """An empty network with a way out, `out0`."""
    with network_with_exit():
        yield


@pytest.fixture
def harness(own_net: None, tmp_path: Path) -> Iterator[FirecrackerHarness]:
    """The backend on real microVMs, as the conformance suite takes it."""
    made = opened_harness(tmp_path)
    made.kill_rounds = 30
    yield made
    made.close()


@pytest.fixture
def backend(harness: FirecrackerHarness) -> FirecrackerBackend:
    """The backend as one worker has it."""
    return harness.open()


@pytest.fixture
def agent_id(harness: FirecrackerHarness) -> str:
    """An agent that does not exist yet."""
    return harness.new_agent_id()
