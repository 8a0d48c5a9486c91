"""A fleet of real SSH servers on the loopback address, looked at more often than in earnest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from kici_scaler.service import fleet as fleet_service
from tests.support.fleets import FleetHouse
from tests.support.sshd import Sshd
from workers.bare_metal.ssh import link
from workers.fleet import fleet, keeper


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(keeper, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(keeper, "PATIENCE_SECONDS", 20.0)
    monkeypatch.setattr(keeper, "STOCK_SECONDS", 1.0)
    monkeypatch.setattr(link, "LONGEST_PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(fleet_service, "CLAIM_SECONDS", 5.0)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """A machine."""
    made = Sshd(tmp_path / "one").start()
    yield made
    made.stop()


@pytest.fixture
def house(engine: Engine, tmp_path: Path) -> Iterator[FleetHouse]:
    """An installation without workers."""
    made = FleetHouse(engine, tmp_path)
    yield made
    made.close()
