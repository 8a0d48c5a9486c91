"""Lifecycle events in the order they were committed, for dispatchers to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from kici_scaler.store.bulk import records, sql


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
    """Append events in the given order."""
    rows = list(events)
    if rows:
        connection.execute(
            sql("""
                INSERT INTO events (type, agent_id, job_id, run_id, detail)
                SELECT type, agent_id, job_id, run_id, detail
                FROM jsonb_to_recordset(CAST(:rows AS jsonb))
                  AS e(type text, agent_id text, job_id text, run_id text, detail text)
            """),
            {"rows": records(rows)},
        )


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
    a reader that follows ids misses none.
    """
    rows = connection.execute(
        sql("""
            SELECT id, at, type, agent_id, job_id, run_id, detail FROM events
            WHERE id > :last
              AND (CAST(:agent AS text) IS NULL OR agent_id = :agent)
              AND (CAST(:job AS text) IS NULL OR job_id = :job)
              AND committed_by < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY id LIMIT :n
        """),
        {"last": last_id, "agent": agent_id, "job": job_id, "n": limit},
    )
    return [EventRow(**row._mapping) for row in rows]


def purge(connection: Connection, *, older_seconds: float) -> int:
    """Forget events past their retention."""
    result = connection.execute(
        sql("DELETE FROM events WHERE at < clock_timestamp() - make_interval(secs => :older)"),
        {"older": older_seconds},
    )
    return result.rowcount
