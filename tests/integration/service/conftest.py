"""Processes that work at once, and a house they work in."""

from __future__ import annotations

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
ALIVE = "UPDATE machines SET last_heartbeat = clock_timestamp() + interval '1 hour'"
"""Nobody beats for the machines of these tests, however long they take here."""


@pytest.fixture(scope="session")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Eight processes that share nothing but the servers."""
    with ProcessPoolExecutor(PROCESSES, mp_context=work.fresh_processes()) as pool:
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
    rows.execute(ALIVE)
    history.configure(tmp_path, ONE_PLACE)
    return history


@pytest.fixture
def house(history: History, rows: Rows, tmp_path: Path) -> History:
    """Two machines, and twenty scalers under every kind of cap."""
    for name in ("m1", "m2"):
        rows.machine(name)
    rows.execute(ALIVE)
    history.configure(tmp_path, many_scalers())
    return history


SCALERS = 20
_LOCAL = """
  - name: scaler-{number}
    type: bare-metal
    maxAgents: {most}
    {more}
    labelSets:
      - labels: [scaler-{number}]
        binaryPath: builtin:agent
"""
_EVENT = """
  - name: scaler-{number}
    type: event
    provisioningTargets: [https://example.test/hook]
    maxAgents: {most}
    {more}
    platform: {{ os: linux, arch: x64 }}
    labelSets:
      - labels: [scaler-{number}]
"""
_MORE = ("", "machinePool: shared", "resourceCap: { maxCpu: 4 }", "machinePool: shared")


def many_scalers(most: int = 45) -> str:
    """A scaler file in which each kind of cap is the tightest for somebody."""
    scalers = "".join(
        (_EVENT if number % 4 == 2 else _LOCAL).format(
            number=number, most=1 + number % 4, more=_MORE[number % 4]
        )
        for number in range(SCALERS)
    )
    return (
        f"version: 1\nglobalMaxAgents: {most}\nglobalResourceCap: {{ maxCpu: 60 }}\n"
        "machinePools: [{ name: shared, cap: { maxCpu: 12 } }]\n"
        f"scalers:{scalers}"
    )


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
