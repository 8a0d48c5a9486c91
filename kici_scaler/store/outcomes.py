"""Outcomes: what became of an agent, kept after its row is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, RowMapping

from kici_scaler.store.bulk import MOST_AT_ONCE, sql


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """An agent's verdict, and how long each state of it took."""

    agent_id: str
    scaler: str
    backend_type: str
    machine_id: str | None
    reserved_by: str | None
    """The process that reserved it."""
    revision: int | None
    """The configuration that it was reserved under."""
    job_id: str | None
    run_id: str | None
    first_adopter: str | None
    destroy_reason: str | None
    condemned_why: str | None
    exit_cause: Mapping[str, object] | None
    log_tail: tuple[str, ...]
    timings: Mapping[str, object]
    failed: bool
    updated_at: datetime
    gone_at: datetime | None


WRITE = """
    INSERT INTO outcomes AS o
        (agent_id, scaler, backend_type, machine_id, job_id, run_id, first_adopter, adopted_at,
         destroy_reason, condemned_why, failed, targets, log_tail, timings, owner, revision_id)
    SELECT s.agent_id, s.scaler, s.backend_type, s.machine_id, s.job_id, s.run_id, s.adopter,
           CASE WHEN s.adopter IS NOT NULL THEN clock_timestamp() END,
           s.destroy_reason, s.condemned_why, CAST(:failed AS boolean), s.targets, :tail,
           jsonb_strip_nulls(jsonb_build_object(
               'requested', r.enqueued_at, 'reserved', s.reserved_at,
               'spawning', s.spawning_at, 'booting', s.booting_at, 'idle', s.idle_at,
               'busy', s.busy_at, 'destroying', s.destroying_at)),
           s.owner, s.revision_id
    FROM {spawns} s LEFT JOIN scale_requests r ON r.job_id = s.job_id
    ON CONFLICT (agent_id) DO UPDATE SET
        job_id = excluded.job_id, run_id = excluded.run_id,
        first_adopter = coalesce(o.first_adopter, excluded.first_adopter),
        adopted_at = coalesce(o.adopted_at, excluded.adopted_at),
        destroy_reason = coalesce(excluded.destroy_reason, o.destroy_reason),
        condemned_why = coalesce(excluded.condemned_why, o.condemned_why),
        failed = o.failed OR excluded.failed,
        log_tail = CASE WHEN cardinality(excluded.log_tail) > 0
                        THEN excluded.log_tail ELSE o.log_tail END,
        timings = o.timings || excluded.timings,
        owner = excluded.owner, revision_id = excluded.revision_id,
        updated_at = clock_timestamp()
"""
"""Writes what is known of `spawns`, which may be what another part of the statement returns; takes
`:failed` and the text array `:tail`. The first adopter is never overwritten."""
_RECORD = sql(
    WRITE.format(spawns="(SELECT * FROM spawns WHERE agent_id = ANY(:ids))"), "ids", "tail"
)


def record(
    connection: Connection,
    agent_ids: Sequence[str],
    *,
    failed: bool = False,
    log_tail: Sequence[str] = (),
) -> None:
    """Write what is known of these live spawns; the first adopter is never overwritten."""
    connection.execute(_RECORD, {"ids": list(agent_ids), "failed": failed, "tail": list(log_tail)})


_COLUMNS = """
    agent_id, scaler, backend_type, machine_id, owner AS reserved_by,
    revision_id AS revision, job_id, run_id, first_adopter, destroy_reason,
    condemned_why, exit_cause, log_tail, timings, failed, updated_at, gone_at
"""


def find(connection: Connection, agent_id: str) -> OutcomeRow | None:
    """The outcome of one agent."""
    rows = connection.execute(
        sql(f"SELECT {_COLUMNS} FROM outcomes WHERE agent_id = :id"), {"id": agent_id}
    )
    return next((_outcome(row._mapping) for row in rows), None)


def recent(connection: Connection, *, limit: int = 100) -> list[OutcomeRow]:
    """Outcomes of agents that are gone, newest first."""
    return _latest(connection, "gone_at IS NOT NULL", limit)


def failed(connection: Connection, *, limit: int = 100) -> list[OutcomeRow]:
    """Outcomes of agents that failed, also of those that are still being torn down."""
    return _latest(connection, "failed", limit)


def _latest(connection: Connection, which: str, limit: int) -> list[OutcomeRow]:
    rows = connection.execute(
        sql(f"SELECT {_COLUMNS} FROM outcomes WHERE {which} ORDER BY updated_at DESC LIMIT :n"),
        {"n": limit},
    )
    return [_outcome(row._mapping) for row in rows]


def purge(connection: Connection, *, older_seconds: float) -> int:
    """Forget outcomes past their retention whose agent has no live row."""
    result = connection.execute(
        sql("""
            DELETE FROM outcomes WHERE agent_id = ANY(ARRAY(
                SELECT agent_id FROM outcomes o
                WHERE updated_at < (SELECT clock_timestamp() - make_interval(secs => :older))
                  AND NOT EXISTS (SELECT 1 FROM spawns s WHERE s.agent_id = o.agent_id)
                ORDER BY updated_at LIMIT :most))
        """),
        {"older": older_seconds, "most": MOST_AT_ONCE},
    )
    return result.rowcount


def _outcome(values: RowMapping) -> OutcomeRow:
    return OutcomeRow(**{**values, "log_tail": tuple(values["log_tail"])})
