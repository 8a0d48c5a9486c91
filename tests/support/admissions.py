"""A configuration to admit under, and a history of reservations in the order of their commits.

The history is written by a deferred trigger: at its COMMIT, a transaction that reserved or gave
back takes a lock, keeps it until it is committed, and writes down what it did. So the order of
the history is the order in which others could see it, and what was live at each moment is added
up afterwards from it alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kici_scaler.domain.scalers import Cap, Cluster
from kici_scaler.scalers_file import load
from kici_scaler.store import revisions, section
from tests.support.rows import Rows

_INSTALL = """
    CREATE TABLE IF NOT EXISTS history (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, change integer NOT NULL,
        agent_id text NOT NULL, job_id text, scaler text NOT NULL, machine_id text, pool text,
        cpu_millis bigint NOT NULL, memory_bytes bigint NOT NULL, owner text NOT NULL,
        revision_id bigint NOT NULL);
    CREATE OR REPLACE FUNCTION write_history() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE it spawns := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    BEGIN
        PERFORM pg_advisory_xact_lock(4711);
        INSERT INTO history (change, agent_id, job_id, scaler, machine_id, pool, cpu_millis,
                             memory_bytes, owner, revision_id)
        VALUES (CASE TG_OP WHEN 'DELETE' THEN -1 ELSE 1 END, it.agent_id, it.job_id, it.scaler,
                it.machine_id, it.pool, it.cpu_millis, it.memory_bytes, it.owner, it.revision_id);
        RETURN NULL;
    END $$;
    DROP TRIGGER IF EXISTS history ON spawns;
    CREATE CONSTRAINT TRIGGER history AFTER INSERT OR DELETE ON spawns
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION write_history();
"""
_REMOVE = """
    DROP TRIGGER IF EXISTS history ON spawns;
    DROP FUNCTION IF EXISTS write_history();
    DROP TABLE IF EXISTS history;
"""


@dataclass
class _Count:
    """Agents, thousandths of a CPU and bytes."""

    agents: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0

    def add(self, change: int, cpu_millis: int, memory_bytes: int) -> None:
        self.agents += change
        self.cpu_millis += change * cpu_millis
        self.memory_bytes += change * memory_bytes

    def passes(self, cap: Cap, most: int | None = None) -> bool:
        return (
            (most is not None and self.agents > most)
            or (cap.cpu_millis is not None and self.cpu_millis > cap.cpu_millis)
            or (cap.memory_bytes is not None and self.memory_bytes > cap.memory_bytes)
        )


@dataclass
class History:
    """What was reserved and given back, by a trigger on the rows."""

    rows: Rows
    clusters: dict[int, Cluster] = field(default_factory=dict)
    """The configuration of each revision."""

    def install(self) -> None:
        """Begin to write, from nothing."""
        self.rows.execute(_REMOVE)
        self.rows.execute(_INSTALL)

    def remove(self) -> None:
        """Leave the schema as it was."""
        self.rows.execute(_REMOVE)

    def configure(self, folder: Path, scalers: str) -> Cluster:
        """Make this text the active configuration; later admissions are held to it."""
        path = folder / "scalers.yaml"
        path.write_text(scalers)
        loaded = load(path)
        with self.rows.begin() as connection:
            section.enter(connection)
            revision = revisions.activate(
                connection,
                document=loaded.document,
                digest=loaded.digest,
                source="test",
                author="test",
            )
        self.clusters[revision] = loaded.cluster
        return loaded.cluster

    def reservations(self) -> Counter[str]:
        """How many times an agent was reserved for each job."""
        return Counter(
            row.job_id for row in self.rows.all("SELECT job_id FROM history WHERE change = 1")
        )

    def violations(self) -> list[str]:
        """Every admission that passed a cap of the revision it was decided under."""
        return list(self._violations())

    def _violations(self) -> Iterator[str]:
        everything = _Count()
        scalers: dict[tuple[str, str | None], _Count] = {}
        pools: dict[tuple[str, str | None], _Count] = {}
        for row in self.rows.all("SELECT * FROM history ORDER BY seq"):
            amounts = (row.change, row.cpu_millis, row.memory_bytes)
            mine = scalers.setdefault((row.scaler, row.machine_id), _Count())
            shared = pools.setdefault((row.pool or "", row.machine_id), _Count())
            for count in (everything, mine, shared):
                count.add(*amounts)
            if row.change == 1:
                yield from self._passed(row, everything, mine, shared)

    def _passed(self, row: Any, everything: _Count, mine: _Count, shared: _Count) -> Iterator[str]:
        cluster = self.clusters[row.revision_id]
        scaler = cluster.scaler(row.scaler)
        assert scaler is not None, f"{row.scaler} is not in the revision it was decided under"
        if everything.passes(cluster.global_resource_cap, cluster.global_max_agents):
            yield f"{row.seq}: the cluster holds {everything}"
        if mine.passes(scaler.resource_cap, scaler.max_agents):
            yield f"{row.seq}: {row.scaler} on {row.machine_id} holds {mine}"
        pool = cluster.pool(row.pool) if row.pool else None
        if pool is not None and shared.passes(pool.cap):
            yield f"{row.seq}: pool {row.pool} on {row.machine_id} holds {shared}"


FINISH_SOME = """
    WITH gone AS (
        DELETE FROM spawns WHERE agent_id IN (
            SELECT agent_id FROM spawns WHERE state = 'reserved'
            ORDER BY random() LIMIT :most FOR UPDATE SKIP LOCKED)
        RETURNING job_id
    )
    UPDATE scale_requests r SET state = 'succeeded', finished_at = clock_timestamp(),
        sealed_payload = NULL
    FROM gone WHERE r.job_id = gone.job_id
"""
"""Let some agents be gone and their jobs be done, as if all had been run."""
