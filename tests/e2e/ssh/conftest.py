"""Three machines on a bridge, and an installation that drives them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from kici_scaler.store import settings
from kici_scaler.store.engine import transaction
from tests.e2e.ssh import machines as network
from tests.e2e.ssh.machines import NamespaceMachine
from tests.support.fleets import FleetHouse

LEASE_SECONDS = 8.0
"""Shorter than by default, so that a killed worker's steps are soon taken up."""


@pytest.fixture(scope="session", autouse=True)
def _bridge() -> Iterator[None]:
    why_not = network.missing()
    if why_not is not None:
        pytest.skip(why_not)
    if os.environ.get("KICI_E2E_SSH") is None:
        pytest.skip("changes the network: run by `make e2e-ssh`, in namespaces of its own")
    network.make_bridge()
    yield
    network.drop_bridge()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[NamespaceMachine]]:
    """Three machines that run."""
    made = [NamespaceMachine(tmp_path / f"m{number}", number) for number in (1, 2, 3)]
    try:
        for each in made:
            each.start()
        yield made
    finally:
        for each in made:
            each.stop()


class Workers:
    """Worker processes; each has a name of its own."""

    def __init__(self, house: FleetHouse, database_url: str) -> None:
        self._house = house
        self._url = database_url
        self._count = 0
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """One more."""
        self._count += 1
        log = (self._house.folder / f"worker-{self._count}.log").open("ab")
        module = "tests.support.fleet_worker"
        where = (self._house.installation_id, f"w{self._count}", str(self._house.folder))
        made = subprocess.Popen(
            [sys.executable, "-m", module, self._url, *where], stdout=log, stderr=log
        )
        self._running.append(made)
        return made

    def kill(self) -> None:
        """Kill all that run."""
        for each in self._running:
            each.kill()
            each.wait()
        self._running.clear()

    def replace(self) -> None:
        """Kill what runs, and start another."""
        self.kill()
        self.start()

    def logs(self) -> str:
        """The last of what all said."""
        texts = [each.read_text() for each in self._house.folder.glob("worker-*.log")]
        return "\n".join(text[-3000:] for text in texts)


@pytest.fixture
def house(engine: Engine, tmp_path: Path) -> Iterator[FleetHouse]:
    """An installation without workers."""
    with transaction(engine) as connection:
        settings.put(connection, "lease_seconds", LEASE_SECONDS, changed_by="e2e")
    made = FleetHouse(engine, tmp_path)
    yield made
    made.close()


@pytest.fixture
def workers(house: FleetHouse, house_url: str) -> Iterator[Workers]:
    """Workers of that installation."""
    made = Workers(house, house_url)
    yield made
    made.kill()
