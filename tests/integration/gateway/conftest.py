"""A house for each test: a database of its own, a configuration, keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kici_scaler.service import reload
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import machines, migrate
from kici_scaler.store.engine import make_engine, transaction
from kici_scaler.store.machines import Announcement
from tests.integration.gateway.house import MACHINE, SCALERS, House, make_keys, make_seal_keys


@pytest.fixture
def house(empty_database: str, redis_url: str, tmp_path: Path) -> Iterator[House]:
    """Servers, schema, one bare-metal scaler, one machine, keys; no gateway yet."""
    migrate.upgrade(empty_database)
    engine = make_engine(empty_database, application="test", pool_size=4)
    runtime = Runtime(engine, "test-worker")
    file = tmp_path / "scalers.yaml"
    file.write_text(SCALERS)
    reload.apply(runtime, reload.read(engine, file), author="test")
    with transaction(engine) as connection:
        machines.announce(
            connection,
            Announcement(MACHINE, "bare-metal", "boot-1", "linux", "x64", 64_000, 1 << 36),
        )
    seal_keys, path = make_seal_keys(tmp_path)
    operator, dispatcher = make_keys(runtime)
    found = House(
        runtime, empty_database, redis_url, tmp_path, seal_keys, path, operator, dispatcher
    )
    with found.stack:
        yield found
    engine.dispose()
