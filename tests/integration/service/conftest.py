"""Processes that work at once, and a house they work in."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path

import pytest
from sqlalchemy import Engine

from kici_scaler.service.runtime import Runtime
from tests.integration.service import work
from tests.integration.service.work import Servers
from tests.support.admissions import History
from tests.support.rows import Rows

PROCESSES = 8


@pytest.fixture(scope="session")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Eight processes that share nothing but the servers."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.integration.service.work"])
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        wait([pool.submit(work.ready) for _ in range(PROCESSES)])
        yield pool


@pytest.fixture
def servers(house_url: str, engine: Engine) -> Servers:
    """The emptied database, without a mutex."""
    return Servers(house_url)


@pytest.fixture
def runtime(engine: Engine) -> Runtime:
    """A runtime of this process."""
    return Runtime(engine=engine, owner="test")


@pytest.fixture
def history(rows: Rows) -> Iterator[History]:
    """Written from the first reservation on."""
    made = History(rows)
    made.install()
    yield made
    made.remove()


@pytest.fixture
def one_place(history: History, rows: Rows, tmp_path: Path) -> History:
    """A house whose scaler `local` has room for one agent on machine m1."""
    rows.machine("m1")
    history.configure(tmp_path, ONE_PLACE)
    return history


ONE_PLACE = """
version: 1
globalMaxAgents: 1000
scalers:
  - name: local
    type: bare-metal
    maxAgents: 1
    labelSets:
      - labels: [linux]
        binaryPath: builtin:agent
  - name: roomy
    type: bare-metal
    maxAgents: 100
    labelSets:
      - labels: [roomy]
        binaryPath: builtin:agent
"""
