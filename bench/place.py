"""Where figures are measured: real servers that flush every commit, and a configured cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis
from sqlalchemy import Engine, text

from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan
from kici_scaler.store import machines, settings
from kici_scaler.store.engine import make_engine, transaction
from kici_scaler.store.machines import Announcement

MACHINE = "bench"
KIND = "bare-metal"
MOST = 1_000_000


@dataclass(frozen=True)
class Place:
    """Running servers with a schema and an active configuration; no role of the system runs."""

    servers: Installation = field(repr=False)
    engine: Engine
    redis: redis.Redis
    redis_url: str = field(repr=False)

    def vacuum(self) -> None:
        """Let the planner know what the tables hold, as autovacuum does on a running cluster."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))

    def count(self, statement: str) -> int:
        """One number from the database."""
        with self.engine.connect() as connection:
            return int(connection.execute(text(statement)).scalar_one())


def scaler_file(scalers: int, *, slots: int = 32) -> str:
    """A configuration of so many scalers, none of whose caps is ever in the way."""
    head = f"version: 1\nglobalMaxAgents: {MOST}\nscalers:\n"
    return head + "".join(
        f"  - name: pool-{number}\n"
        f"    type: {KIND}\n"
        f"    maxAgents: {MOST}\n"
        f"    maxConcurrentSpawns: {slots}\n"
        f"    labelSets:\n"
        f"      - labels: [linux, pool-{number}]\n"
        f"        binaryPath: builtin:agent\n"
        f"        resources: {{cpus: 1, memory: 256m}}\n"
        for number in range(scalers)
    )


@contextmanager
def servers(scalers: int, *, slots: int = 32, machine: bool = True) -> Iterator[Place]:
    """Embedded Postgres and Redis as `kici-scaler up` runs them.

    With `machine`, one is announced that takes whatever is reserved, though nobody drives it.
    """
    with tempfile.TemporaryDirectory(prefix="kici-bench-") as folder:
        file = Path(folder) / "scalers.yaml"
        file.write_text(scaler_file(scalers, slots=slots))
        with Installation(Plan(roles=(), scaler_file=file)) as running:
            profile = running.profile
            engine = make_engine(profile.database_url.get_secret_value(), application="bench")
            url = profile.redis_url.get_secret_value()
            try:
                with closing(redis.Redis.from_url(url)) as client:
                    if machine:
                        _announce(engine)
                    yield Place(running, engine, client, url)
            finally:
                engine.dispose()


def _announce(engine: Engine) -> None:
    announcement = Announcement(
        MACHINE, KIND, "bench", "linux", "x64", cpu_millis=MOST, memory_bytes=1 << 50
    )
    with transaction(engine) as connection:
        machines.announce(connection, announcement)
        settings.put(connection, "machine_stale_seconds", 86_400, changed_by="bench")
