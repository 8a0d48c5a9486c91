"""Lifecycle events in the order they were committed, for dispatchers to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from kici_scaler.store.bulk import MOST_AT_ONCE, records, sql

_MARKS = 0x4B45
"""The upper bits of the advisory locks that mark open writers."""


class EventType(StrEnum):
    """Types of the engine protocol, and the ends of a request."""

    PROVISIONING = "scaler.provisioning"
    NETWORK = "scaler.network"
    READY = "scaler.ready"
    FAILED = "scaler.failed"
    CONNECTING = "agent.connecting"
    REQUEST_FINISHED = "request.finished"
    REQUEST_REQUEUED = "request.requeued"


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something that happened to an agent, and whose job it was for."""

    type: EventType
    agent_id: str | None
    job_id: str | None
    run_id: str | None
    detail: str = ""
    at_ms: int | None = None
    """Epoch milliseconds at which it was emitted, where that was earlier than this."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """A stored event; `id` only grows."""

    id: int
    at: datetime
    type: str
    agent_id: str | None
    job_id: str | None
    run_id: str | None
    detail: str


def record(connection: Connection, events: Iterable[NewEvent]) -> None:
    """Append events in the given order.

    Before it takes ids, a transaction marks how far they have been given out, until it ends:
    its own will be higher than that. The mark is a lock that nobody waits for.
    """
    rows = list(events)
    if rows:
        connection.execute(_RECORD, {"events": as_parameter(rows)})


_GIVEN_OUT = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM events_id_seq"
_MARK = f"SELECT pg_advisory_xact_lock_shared(({_MARKS}::bigint << 48) | ({_GIVEN_OUT}))"
_INSERT = """
    INSERT INTO events (at, type, agent_id, job_id, run_id, detail)
    SELECT coalesce(to_timestamp(e.at_ms / 1000.0), clock_timestamp()), e.type, e.agent_id,
           e.job_id, {run_id}, e.detail
    FROM {source}, jsonb_to_recordset(CAST(:events AS jsonb))
      AS e(type text, agent_id text, job_id text, run_id text, detail text,
           at_ms bigint)
"""
_RECORD = sql(
    f"WITH mark AS MATERIALIZED ({_MARK}) {_INSERT.format(source='mark', run_id='e.run_id')}"
)


def append(when: str, *, run_id: str = "e.run_id") -> str:
    """Part of a statement that does the same with `:events`, as `as_parameter` has them.

    Args:
        when: another part of the statement; nothing is appended unless it has its one row.
        run_id: where the run is read, if it is not the events that say it.
    """
    insert = _INSERT.format(source=f"mark, {when}", run_id=run_id)
    return f"mark AS MATERIALIZED ({_MARK} FROM {when}), appended AS ({insert})"


def append_of(agents: str) -> str:
    """The same for the events of those agents alone that `agents` has, another part."""
    return f"""
        mark AS MATERIALIZED ({_MARK} FROM (SELECT FROM {agents} LIMIT 1) AS any_of_them),
        appended AS (
            INSERT INTO events (at, type, agent_id, job_id, run_id, detail)
            SELECT coalesce(to_timestamp(e.at_ms / 1000.0), clock_timestamp()), e.type, e.agent_id,
                   e.job_id, e.run_id, e.detail
            FROM mark, ROWS FROM (jsonb_to_recordset(CAST(:events AS jsonb)) AS (
                type text, agent_id text, job_id text, run_id text, detail text, at_ms bigint
            )) WITH ORDINALITY AS e(type, agent_id, job_id, run_id, detail, at_ms, place)
            WHERE e.agent_id IN (SELECT agent_id FROM {agents})
            ORDER BY e.place
        )"""


def as_parameter(events: Iterable[NewEvent]) -> str:
    """What stands for these events as a parameter of a statement."""
    return records(events)


_LOWEST_MARK = sql(f"""
    SELECT min(((classid::bigint << 32) | objid::bigint) & 281474976710655) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 16 = {_MARKS}
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
""")


def after(
    connection: Connection,
    last_id: int,
    *,
    limit: int = 500,
    agent_id: str | None = None,
    job_id: str | None = None,
) -> list[EventRow]:
    """Events past `last_id`, oldest first.

    An event whose transaction may still be open hides the ones after it until it ends, so
    a reader that follows ids misses none: as long as each call has a snapshot of its own
    (READ COMMITTED), since it first asks how far ids are settled and then reads.
    """
    rows = connection.execute(
        sql("""
            SELECT id, at, type, agent_id, job_id, run_id, detail FROM events
            WHERE id > :last AND id <= :settled
              AND (CAST(:agent AS text) IS NULL OR agent_id = :agent)
              AND (CAST(:job AS text) IS NULL OR job_id = :job)
            ORDER BY id LIMIT :n
        """),
        {
            "last": last_id,
            "settled": _settled(connection),
            "agent": agent_id,
            "job": job_id,
            "n": limit,
        },
    )
    return [EventRow(**row._mapping) for row in rows]


def _settled(connection: Connection) -> int:
    """An id up to which every event is committed or will never be.

    In this order: what was given out by now is under a mark by now, or its transaction ended.
    """
    given_out: int = connection.execute(sql(_GIVEN_OUT)).scalar_one()
    lowest: int | None = connection.execute(_LOWEST_MARK).scalar_one()
    return given_out if lowest is None else min(given_out, lowest)


def purge(connection: Connection, *, older_seconds: float) -> int:
    """Forget events past their retention."""
    result = connection.execute(
        sql("""
            DELETE FROM events WHERE id = ANY(ARRAY(
                SELECT id FROM events
                WHERE at < (SELECT clock_timestamp() - make_interval(secs => :older))
                ORDER BY at LIMIT :most))
        """),
        {"older": older_seconds, "most": MOST_AT_ONCE},
    )
    return result.rowcount
