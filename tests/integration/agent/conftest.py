from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.agent_process import AgentProcess, agent_process
from tests.support.scripted_gateway import ScriptedGateway, scripted_gateway

StartAgent = Callable[..., AgentProcess]


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    with scripted_gateway() as running:
        yield running


@pytest.fixture
def start_agent(gateway: ScriptedGateway, tmp_path: Path) -> Iterator[StartAgent]:
    """Start an agent that connects to `gateway`; keyword arguments are its environment."""
    with ExitStack() as running:

        def start(**more: str | None) -> AgentProcess:
            return running.enter_context(agent_process(gateway.url, tmp_path / "agent", more))

        yield start
