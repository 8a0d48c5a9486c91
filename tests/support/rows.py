"""A migrated database, emptied before each test, and rows in any state a test asks for.

Rows are written as plain SQL, so that a test of the stores does not lean on the stores.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Row, text
from sqlalchemy.engine import make_url

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import migrate
from kici_scaler.store.engine import make_engine, transaction
from kici_scaler.store.machines import Announcement
from kici_scaler.store.requests import NewRequest
from kici_scaler.store.spawns import Blueprint, NewSpawn
from tests.support.servers import Databases
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually

__all__ = [
    "ENVELOPE",
    "Rows",
    "announcement",
    "application",
    "engine",
    "house_url",
    "new_request",
    "new_spawn",
    "rows",
]

S = SpawnState
ENVELOPE = {"keyId": "key", "sealed": "c2VhbGVk"}
MACHINE = "m1"
KIND = "bare-metal"

_numbers = itertools.count(1)


def new_request(job: str | None = None, **more: Any) -> NewRequest:
    """A request for the label `linux` that nobody stored yet."""
    request = NewRequest(
        job_id=job or f"job-{next(_numbers)}",
        run_id="run",
        digest="digest",
        labels=("linux",),
        sealed_payload=dict(ENVELOPE),
    )
    return replace(request, **more)


def new_spawn(job: str | None = None, *, revision: int, **more: Any) -> NewSpawn:
    """A reservation of scaler `local` on machine m1."""
    common = {each.name for each in fields(Blueprint)}
    blueprint = Blueprint(
        scaler="local",
        backend_type=KIND,
        revision_id=revision,
        label_set_index=0,
        label_set=("linux",),
        agent_labels=("linux", "kici:scaler:local"),
        gate=(),
        roles=("builder",),
        targets=(),
        machine_id=MACHINE,
        pool=None,
        spawn_slots=100,
        owner="owner",
    )
    spawn = NewSpawn(
        blueprint=replace(blueprint, **{k: v for k, v in more.items() if k in common}),
        agent_id=f"scaler-bare-metal-{next(_numbers):012x}",
        warm=job is None,
        spawn_timeout_seconds=300.0,
        cpu_millis=1000,
        memory_bytes=1024,
        limit_cpu_millis=None,
        limit_memory_bytes=None,
        job_id=job,
        run_id=None if job is None else "run",
        org=None,
    )
    return spawn._replace(**{k: v for k, v in more.items() if k not in common})


def announcement(machine: str = MACHINE, kind: str = KIND, **more: Any) -> Announcement:
    """What the worker of a machine says of it."""
    said = Announcement(machine, kind, "boot-1", "linux", "x64", 8000, 2**34)
    return replace(said, **more)


_SINCE = {
    S.RESERVED: (),
    S.SPAWNING: ("spawning_at",),
    S.BOOTING: ("spawning_at", "booting_at"),
    S.IDLE: ("spawning_at", "booting_at", "idle_at"),
    S.BUSY: ("spawning_at", "booting_at", "idle_at", "busy_at"),
    S.DESTROYING: ("spawning_at", "destroying_at"),
    S.QUARANTINED: ("spawning_at", "destroying_at", "quarantined_at"),
}
"""The columns of times that a spawn in each state has filled."""


_KEYS = {
    "agents": "agent_id",
    "gateways": "incarnation",
    "machines": "machine_id",
    "outcomes": "agent_id",
    "scale_requests": "job_id",
    "spawns": "agent_id",
}


_BLOCKED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


class Rows:
    """Writes and reads rows directly; each call is a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction, as the code under test runs it."""
        with transaction(self.engine) as connection:
            yield connection

    def call(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """What a store function answers in a transaction of its own."""
        with self.begin() as connection:
            return function(connection, *args, **more)

    def execute(self, statement: str, **values: Any) -> int:
        """Run one statement; how many rows it touched."""
        with self.begin() as connection:
            return connection.execute(text(statement), values).rowcount

    def all(self, statement: str, **values: Any) -> list[Row[Any]]:
        """The rows of a query."""
        with self.begin() as connection:
            return list(connection.execute(text(statement), values))

    def one(self, statement: str, **values: Any) -> Any:
        """The single value of a query."""
        (row,) = self.all(statement, **values)
        return row[0]

    def count(self, table: str, where: str = "true", **values: Any) -> int:
        """How many rows of a table there are."""
        return int(self.one(f"SELECT count(*) FROM {table} WHERE {where}", **values))

    def set(self, table: str, key: str, **columns: Any) -> None:
        """Change columns of the row whose first column is `key`."""
        changes = ", ".join(f"{name} = :{name}" for name in columns)
        touched = self.execute(
            f"UPDATE {table} SET {changes} WHERE {_KEYS[table]} = :key", key=key, **columns
        )
        assert touched == 1, f"no {table} row {key}"

    def shift(self, table: str, key: str, **columns: float) -> None:
        """Set time columns to so many seconds from now."""
        changes = ", ".join(f"{name} = clock_timestamp() + :{name}" for name in columns)
        values = {name: timedelta(seconds=seconds) for name, seconds in columns.items()}
        touched = self.execute(
            f"UPDATE {table} SET {changes} WHERE {_KEYS[table]} = :key", key=key, **values
        )
        assert touched == 1, f"no {table} row {key}"

    def get(self, table: str, key: str) -> Mapping[str, Any]:
        """The row whose first column is `key`."""
        (row,) = self.all(f"SELECT * FROM {table} WHERE {_KEYS[table]} = :key", key=key)
        return dict(row._mapping)

    def wait_until_blocked(self, sessions: int = 1) -> None:
        """Return once so many sessions of this database wait for somebody's lock."""
        eventually(
            lambda: self.one(_BLOCKED) >= sessions, why=f"{sessions} sessions waiting for a lock"
        )

    def revision(self, *, active: bool = False, document: Mapping[str, Any] | None = None) -> int:
        """A configuration revision's id."""
        return int(
            self.one(
                "INSERT INTO config_revisions (digest, document, source, author, active)"
                " VALUES ('digest', CAST(:document AS jsonb), 'test', 'test', :active)"
                " RETURNING id",
                document=json.dumps(document or {}),
                active=active,
            )
        )

    def request(self, job: str | None = None, *, state: str = "waiting", **more: Any) -> str:
        """A stored request's job id."""
        job = job or f"job-{next(_numbers)}"
        is_over = state in ("succeeded", "failed", "cancelled", "refused")
        columns = {
            "job_id": job,
            "run_id": "run",
            "digest": "digest",
            "state": state,
            "labels": ["linux"],
            "max_requeues": 2,
            "sealed_payload": None if is_over else json.dumps(ENVELOPE),
            **more,
        }
        self._insert("scale_requests", columns, now=["finished_at"] if is_over else [])
        return job

    def spawn(
        self,
        state: SpawnState = S.RESERVED,
        *,
        job: str | None = None,
        agent: str | None = None,
        due: float | None = 3600.0,
        **more: Any,
    ) -> str:
        """A spawn in any state, due in so many seconds; its agent id."""
        agent = agent or f"scaler-bare-metal-{next(_numbers):012x}"
        revision = more.pop("revision_id", None) or self._any_revision()
        is_ending = state in (S.DESTROYING, S.QUARANTINED)
        columns: dict[str, Any] = {
            "agent_id": agent,
            "state": state.value,
            "scaler": "local",
            "backend_type": KIND,
            "revision_id": revision,
            "label_set_index": 0,
            "label_set": ["linux"],
            "agent_labels": ["linux"],
            "gate": [],
            "machine_id": MACHINE,
            "warm": job is None,
            "spawn_slots": 100,
            "spawn_timeout_seconds": 300.0,
            "cpu_millis": 1000,
            "memory_bytes": 1024,
            "job_id": job,
            "run_id": None if job is None else "run",
            "owner": "owner",
            "destroy_reason": "shutdown" if is_ending else None,
            **more,
        }
        self._insert("spawns", columns, now=_SINCE[state], due=due)
        return agent

    def busy(self, job: str | None = None, **more: Any) -> tuple[str, str]:
        """A running job and its busy agent: (agent id, job id)."""
        job = self.request(job, state="running")
        return self.spawn(S.BUSY, job=job, **more), job

    def machine(self, machine: str = MACHINE, *, kind: str = KIND, **more: Any) -> str:
        """A machine that was just heard of."""
        columns = {
            "machine_id": machine,
            "backend_type": kind,
            "boot_id": "boot-1",
            "os": "linux",
            "arch": "x64",
            "cpu_millis": 8000,
            "memory_bytes": 2**34,
            **more,
        }
        self._insert("machines", columns)
        return machine

    def gateway(self, incarnation: str = "gw-1", **more: Any) -> str:
        """A gateway that was just heard of."""
        self._insert("gateways", {"incarnation": incarnation, "host": "h", "pid": 1, **more})
        return incarnation

    def agent(
        self, agent: str, *, gateway: str | None = "gw-1", number: int = 1, **more: Any
    ) -> str:
        """A connected agent of a spawn; without a gateway it is unseen from now on."""
        columns = {
            "agent_id": agent,
            "spawn_id": agent,
            "labels": ["linux"],
            "gate": [],
            "gateway": gateway,
            "connection_number": number,
            **more,
        }
        self._insert("agents", columns, now=[] if gateway else ["unseen_since"])
        return agent

    def _any_revision(self) -> int:
        found = self.all("SELECT id FROM config_revisions ORDER BY active DESC, id LIMIT 1")
        return int(found[0][0]) if found else self.revision()

    def _insert(
        self, table: str, columns: Mapping[str, Any], *, now: Any = (), due: float | None = None
    ) -> None:
        names = [*columns, *now]
        values = [f":{name}" for name in columns] + ["clock_timestamp()"] * len(now)
        given = dict(columns)
        if due is not None:
            names.append("due_at")
            values.append("clock_timestamp() + :due_at_")
            given["due_at_"] = timedelta(seconds=due)
        self.execute(
            f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(values)})", **given
        )


_TABLES = (
    "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
)

_DELETED_LAST = (
    "agents", "spawns", "scale_requests", "gateways", "scaler_states", "config_revisions",
)  # fmt: skip
"""Whatever others refer to, after what refers to it."""


def _emptied(connection: Connection) -> str:
    """Deletes of every row; many times quicker than TRUNCATE for as few as a test makes."""
    tables = set(connection.execute(text(_TABLES)).scalars())
    others = sorted(tables - set(_DELETED_LAST))
    return ";".join(f"DELETE FROM {table}" for table in (*others, *_DELETED_LAST))


@pytest.fixture(scope="session")
def house_url(databases: Databases) -> str:
    """URL of a migrated database of this test process; `engine` empties it before each test."""
    url = databases.create()
    migrate.upgrade(url)
    return url


@pytest.fixture
def application() -> str:
    """The name under which the test's connections show."""
    return "test"


@pytest.fixture
def engine(house_url: str, application: str) -> Iterator[Engine]:
    """An engine of production's making on an empty, migrated database."""
    made = make_engine(house_url, application=application, pool_size=40, uses_before_prepared=0)
    with made.begin() as connection:
        connection.execute(text(_emptied(connection)))
    yield made
    made.dispose()


@pytest.fixture
def proxy(house_url: str) -> Iterator[TcpProxy]:
    """What a test can put between itself and its database."""
    url = make_url(house_url)
    assert url.host is not None
    assert url.port is not None
    with TcpProxy((url.host, url.port)) as made:
        yield made


@pytest.fixture
def rows(engine: Engine) -> Rows:
    """Rows of the emptied database."""
    return Rows(engine)
