"""Leases on spawns that are being started: keep them alive, record what was made.

A token from one sequence marks each take. Whoever lost its lease finds no row under its
token when it applies, and may only undo what that token made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import events
from kici_scaler.store.bulk import records, sql
from kici_scaler.store.events import NewEvent


def extend(
    connection: Connection, *, holder: str, tokens: Collection[int], lease_seconds: float
) -> int:
    """Keep the leases alive under which this holder works; returns how many still ran.

    Others in its name run out: a take whose answer was lost, a step that broke off. So does one
    that keeps an agent from being torn down past the bound of that: it hangs, however alive the
    worker is, and the agent has to be taken by another, and alarmed.
    """
    result = connection.execute(
        sql("""
            UPDATE spawns
            SET lease_expires_at = clock_timestamp() + make_interval(secs => :lease),
                due_at = CASE WHEN state IN ('spawning', 'destroying', 'quarantined')
                    THEN greatest(due_at, clock_timestamp() + make_interval(secs => :lease))
                    ELSE due_at END
            WHERE lease_holder = :holder AND lease_expires_at > clock_timestamp()
              AND lease_token = ANY(CAST(:tokens AS bigint[]))
              AND (state <> 'destroying' OR deadline_at > clock_timestamp())
        """),
        {"holder": holder, "tokens": list(tokens), "lease": lease_seconds},
    )
    return result.rowcount


def still_wanted(connection: Connection, agent_id: str, token: int) -> bool:
    """Whether this token still leads, and nobody has decided to tear the agent down."""
    statement = sql(
        "SELECT EXISTS (SELECT 1 FROM spawns WHERE agent_id = :id AND lease_token = :token"
        " AND state IN ('spawning', 'idle', 'busy') AND lease_expires_at > clock_timestamp())"
    )
    row = connection.execute(statement, {"id": agent_id, "token": token})
    return bool(row.scalar_one())


@dataclass(frozen=True, slots=True)
class MadeStart:
    """What a token made."""

    agent_id: str
    token: int
    ref: Mapping[str, str]
    boot_floor: float
    """Seconds that it has at least until its agent registers."""
    look_after: float
    """Seconds until it is looked at for the first time."""


_CREATED = sql(f"""
    WITH given AS (
        SELECT * FROM jsonb_to_recordset(CAST(:made AS jsonb)) AS g(agent_id text, token bigint,
            ref jsonb, boot_floor double precision, look_after double precision)
    ), led AS MATERIALIZED (
        SELECT s.agent_id, g.ref, g.boot_floor, g.look_after
        FROM spawns s JOIN given g ON g.agent_id = s.agent_id
        WHERE s.lease_token = g.token AND s.lease_holder IS NOT NULL
        ORDER BY s.agent_id FOR NO KEY UPDATE OF s
    ), made AS (
        UPDATE spawns s SET
            backend_ref = led.ref, created_with = lease_token,
            lease_holder = NULL, lease_expires_at = NULL,
            booting_at = CASE WHEN state = 'spawning' THEN clock_timestamp() ELSE booting_at END,
            deadline_at = CASE WHEN state = 'spawning'
                THEN clock_timestamp()
                     + make_interval(secs => greatest(spawn_timeout_seconds, led.boot_floor))
                ELSE deadline_at END,
            due_at = CASE state
                WHEN 'spawning' THEN clock_timestamp() + make_interval(secs => led.look_after)
                WHEN 'destroying' THEN clock_timestamp()
                ELSE due_at END,
            due_count = CASE WHEN state = 'spawning' THEN 0 ELSE due_count END,
            state = CASE WHEN state = 'spawning' THEN 'booting' ELSE state END
        FROM led WHERE s.agent_id = led.agent_id
        RETURNING s.agent_id, s.lease_token, s.state
    ), {events.append_of("made")}
    SELECT lease_token, state FROM made
""")


def record_created(
    connection: Connection, made: Iterable[MadeStart], told: Iterable[NewEvent] = ()
) -> dict[int, SpawnState]:
    """Record what tokens made, and what they told; the states of those that had not lost their
    lease, by token (of others undo only what they made). An agent is named once.

    Whatever the state has become meanwhile, what exists is recorded; only `spawning`
    advances, since the agent may have registered already.
    """
    values = {"made": records(made), "events": events.as_parameter(told)}
    rows = connection.execute(_CREATED, values)
    return {row.lease_token: SpawnState(row.state) for row in rows}


def made_with(connection: Connection, *, agent_id: str, token: int) -> SpawnState | None:
    """The state of a spawn whose compute was recorded under this token; None for any other."""
    state = connection.execute(
        sql("SELECT state FROM spawns WHERE agent_id = :id AND created_with = :token"),
        {"id": agent_id, "token": token},
    ).scalar_one_or_none()
    return None if state is None else SpawnState(state)


def release(
    connection: Connection, *, agent_id: str, token: int, pause_seconds: float = 0.0
) -> SpawnState | None:
    """Give the lease back without a result; None when it was lost already.

    A spawn that nobody has ended meanwhile may be taken again after the pause.
    """
    state = connection.execute(
        sql("""
            UPDATE spawns SET lease_holder = NULL, lease_expires_at = NULL,
                due_at = CASE state
                    WHEN 'destroying' THEN clock_timestamp()
                    WHEN 'spawning' THEN clock_timestamp() + make_interval(secs => :pause)
                    ELSE due_at END,
                retry_at = clock_timestamp() + make_interval(secs => :pause)
            WHERE agent_id = :id AND lease_token = :token AND lease_holder IS NOT NULL
            RETURNING state
        """),
        {"id": agent_id, "token": token, "pause": pause_seconds},
    ).scalar_one_or_none()
    return None if state is None else SpawnState(state)


def undo(connection: Connection, *, agent_id: str, token: int) -> bool:
    """Delete a spawn of which this first attempt has certainly made nothing."""
    gone = connection.execute(
        sql("""
            DELETE FROM spawns
            WHERE agent_id = :id AND lease_token = :token AND state = 'spawning'
              AND attempts = 1 AND backend_ref IS NULL
        """),
        {"id": agent_id, "token": token},
    )
    return gone.rowcount == 1
