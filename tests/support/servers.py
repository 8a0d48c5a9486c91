"""Real Postgres and Redis for the tests: one pair a test process, started when first asked for.

`KICI_TEST_POSTGRES_BIN=/usr/lib/postgresql/15/bin` runs the tests on another Postgres.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import psycopg2
import pytest
import redis
from psycopg2 import sql
from sqlalchemy.engine import make_url

from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.postgres import ROLE, EmbeddedPostgres
from kici_scaler.embedded.postgres import STOP as POSTGRES_STOP
from kici_scaler.embedded.process import Command, Process, StopStep
from kici_scaler.embedded.redis import STOP as REDIS_STOP
from kici_scaler.embedded.redis import EmbeddedRedis
from tests.support.waiting import eventually


class Server(Protocol):
    """What both embedded servers offer."""

    def prepare(self) -> None: ...
    def command(self) -> Command: ...
    def is_ready(self) -> bool: ...


@contextmanager
def running(server: Server, stop: tuple[StopStep, ...]) -> Iterator[Process]:
    """The server's process, ready; stopped at the end."""
    server.prepare()
    process = Process(server.command(), lambda _line: None)
    try:
        eventually(
            lambda: process.returncode is not None or server.is_ready(),
            within=30,
            why=lambda: " / ".join(process.tail()),
        )
        assert process.returncode is None, process.tail()
        yield process
    finally:
        process.stop(stop)


@dataclass
class Databases:
    """Makes empty databases, or copies of one, on the test server, which goes with all of them."""

    server: EmbeddedPostgres
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def create(self, template_url: str | None = None) -> str:
        """URL of a new database, owned by the role of the URL.

        Args:
            template_url: a database to copy; nobody may be connected to it.
        """
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        template = make_url(template_url).database if template_url else "template0"
        assert template is not None
        names = (sql.Identifier(part) for part in (name, ROLE, template))
        self._execute(sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}").format(*names))
        return make_url(self.server.url).set(database=name).render_as_string(hide_password=False)

    def drop(self, database_url: str) -> None:
        """Drop a database made here, with whoever is connected to it."""
        name = make_url(database_url).database
        assert name is not None
        self._execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )

    def _execute(self, statement: sql.Composed) -> None:
        url = make_url(self.server.superuser_url).set(drivername="postgresql")
        with closing(psycopg2.connect(url.render_as_string(hide_password=False))) as session:
            session.autocommit = True
            with session.cursor() as cursor:
                cursor.execute(statement)


@dataclass(frozen=True)
class SharedServers:
    """A running pair for one test process after another, found by the environment."""

    home: Path
    postgres_port: int
    redis_port: int

    VARIABLE: ClassVar[str] = "KICI_TEST_SERVERS"

    def environment(self) -> dict[str, str]:
        """What leads a test process here."""
        return {self.VARIABLE: f"{self.home}:{self.postgres_port}:{self.redis_port}"}

    @classmethod
    def named(cls) -> SharedServers | None:
        """Those that the environment names."""
        if not (text := os.environ.get(cls.VARIABLE)):
            return None
        home, postgres, redis = text.rsplit(":", 2)
        return cls(Path(home), int(postgres), int(redis))


@pytest.fixture(scope="session")
def servers_home() -> Iterator[Path]:
    """A folder for server data that also the servers' account can reach."""
    home = make_temporary_home("kici-tests-")
    yield home
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def postgres_server(servers_home: Path) -> Iterator[EmbeddedPostgres]:
    """The running Postgres of this test process; not durable, hence quick."""
    if (shared := SharedServers.named()) is not None:
        yield EmbeddedPostgres(shared.home, shared.postgres_port, durable=False)
        return
    binaries = os.environ.get("KICI_TEST_POSTGRES_BIN")
    server = EmbeddedPostgres(
        servers_home,
        free_port(),
        binaries=Path(binaries) if binaries else None,
        durable=False,
    )
    with running(server, POSTGRES_STOP):
        server.provision()
        yield server


@pytest.fixture(scope="session")
def redis_server(servers_home: Path) -> Iterator[EmbeddedRedis]:
    """The running Redis of this test process; keeps nothing on disk."""
    if (shared := SharedServers.named()) is not None:
        yield EmbeddedRedis(shared.home, shared.redis_port, durable=False)
        return
    server = EmbeddedRedis(servers_home, free_port(), durable=False)
    with running(server, REDIS_STOP):
        yield server


@pytest.fixture(scope="session")
def databases(postgres_server: EmbeddedPostgres) -> Databases:
    """Makes databases, also as copies of a prepared one (a quick way to a migrated schema)."""
    return Databases(postgres_server)


@pytest.fixture(scope="session")
def postgres_url(postgres_server: EmbeddedPostgres) -> str:
    """The one database of this test process that all its tests share; empty at first."""
    return postgres_server.url


@pytest.fixture
def empty_database(databases: Databases) -> Iterator[str]:
    """URL of a database of this test's own."""
    url = databases.create()
    yield url
    databases.drop(url)


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """Database 0 of this test process's Redis, emptied before the test."""
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        client.flushall()
    return redis_server.url
