"""The host's network for these tests: a namespace of each test's own; and the backend in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.firecracker import FirecrackerHarness, network_with_exit, opened_harness
from workers.firecracker.backend import FirecrackerBackend


@pytest.fixture
def own_net() -> Iterator[None]:
    """An empty network with a way out, `out0`."""
    with network_with_exit():
        yield


@pytest.fixture
def harness(own_net: None, tmp_path: Path) -> Iterator[FirecrackerHarness]:
    """The backend on a recorder, as the conformance suite takes it."""
    made = opened_harness(tmp_path)
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
