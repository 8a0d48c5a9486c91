"""Houses: one for a test that harms its gateway, one for all tests of a module that do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.embedded.redis import EmbeddedRedis
from kici_scaler.sealing import SealingKeys, ensure_keys
from kici_scaler.service import keys, reload
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import machines, migrate, settings
from kici_scaler.store.engine import make_engine, transaction
from kici_scaler.store.machines import Announcement
from tests.integration.gateway.house import MACHINE, SCALERS, GatewayProcess, House
from tests.support.servers import Databases


@dataclass(frozen=True)
class Prepared:
    """A database to copy, and the secrets that belong to it."""

    url: str
    operator: str
    dispatcher: str
    seal_keys: SealingKeys
    seal_keys_path: Path


@pytest.fixture(scope="session")
def prepared(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Schema, one bare-metal scaler, one machine, API keys, sealing keys."""
    folder = tmp_path_factory.mktemp("prepared")
    url = databases.create()
    migrate.upgrade(url)
    engine = make_engine(url, application="test", pool_size=1)
    runtime = Runtime(engine, "test")
    file = folder / "scalers.yaml"
    file.write_text(SCALERS)
    reload.apply(runtime, reload.read(engine, file), author="test")
    with transaction(engine) as connection:
        # Nobody beats for the machine, however long a test takes.
        settings.put(connection, "machine_stale_seconds", 3_600.0, changed_by="test")
    operator = keys.create(runtime, scope=KeyScope.OPERATOR, name="op").token
    dispatcher = keys.create(runtime, scope=KeyScope.DISPATCHER, name="ci").token
    engine.dispose()
    path = folder / "seal-keys.json"
    return Prepared(url, operator, dispatcher, ensure_keys(path), path)


@contextmanager
def a_house(
    databases: Databases, prepared: Prepared, redis_url: str, folder: Path
) -> Iterator[House]:
    """A house of its own database; no gateway yet."""
    url = databases.create(prepared.url)
    engine = make_engine(url, application="test", pool_size=4)
    with transaction(engine) as connection:
        machines.announce(
            connection,
            Announcement(MACHINE, "bare-metal", "boot-1", "linux", "x64", 64_000, 1 << 36),
        )
    house = House(
        Runtime(engine, "test-worker"), url, redis_url, folder, prepared.seal_keys,
        prepared.seal_keys_path, prepared.operator, prepared.dispatcher,
    )  # fmt: skip
    with house.stack:
        yield house
    engine.dispose()
    databases.drop(url)


@pytest.fixture
def house(
    databases: Databases, prepared: Prepared, redis_url: str, tmp_path: Path
) -> Iterator[House]:
    """A house for one test."""
    with a_house(databases, prepared, redis_url, tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def shared(
    databases: Databases,
    prepared: Prepared,
    redis_server: EmbeddedRedis,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[House]:
    """A house for all tests of a module."""
    folder = tmp_path_factory.mktemp("house")
    with a_house(databases, prepared, redis_server.url, folder) as found:
        yield found


@pytest.fixture(scope="module")
def gateway(shared: House) -> GatewayProcess:
    """The gateway of the shared house."""
    return shared.gateway()


@pytest.fixture(scope="module")
def second_gateway(shared: House) -> GatewayProcess:
    """Another gateway of the shared house."""
    return shared.gateway()
