"""Each test runs once for each backend; `--backend TYPE` picks some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.harness import Harness, harnesses
from workers.contract import Backend


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--backend`, when this folder is what is run."""
    parser.addoption(
        "--backend", action="append", metavar="TYPE", help="check only this backend; repeatable"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One run for each backend."""
    if "harness" in metafunc.fixturenames:
        picked = metafunc.config.getoption("--backend", default=None) or sorted(harnesses())
        metafunc.parametrize("backend_type", picked, scope="function")


@pytest.fixture
def harness(backend_type: str, tmp_path: Path) -> Iterator[Harness]:
    """A fresh harness for the backend."""
    made = harnesses()[backend_type](tmp_path)
    yield made
    made.close()


@pytest.fixture
def backend(harness: Harness) -> Backend:
    """The backend as one worker has it."""
    return harness.open()


@pytest.fixture
def agent_id(harness: Harness) -> str:
    """An agent that does not exist yet."""
    return harness.new_agent_id()
