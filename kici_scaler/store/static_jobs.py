"""The job that an agent has which no scaler made; it stands on the request.

So a job has one agent, whatever kind it is of. Lock order: the request first, then its
agent, and an agent that somebody works on is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.static_agents import StaticDue
from kici_scaler.store.bulk import as_rows, sql
from kici_scaler.store.static_agents import FREE
from kici_scaler.store.warm import Bound

LONGEST_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class StaticJob:
    """The job that an agent has."""

    job_id: str
    run_id: str
    running: bool


def job_of(connection: Connection, agent_id: str, *, offer_seconds: float) -> StaticJob | None:
    """The job of an agent that just connected; one it did not accept yet is offered anew."""
    row = connection.execute(
        sql("""
            UPDATE scale_requests SET
                static_deadline_at = CASE WHEN state = 'running' THEN static_deadline_at
                    ELSE clock_timestamp() + make_interval(secs => :offer) END,
                static_due_at = CASE WHEN state = 'running' THEN static_deadline_at
                    ELSE clock_timestamp() + make_interval(secs => :offer) END,
                static_due_count = 0
            WHERE static_agent = :id
            RETURNING job_id, run_id, state = 'running' AS running
        """),
        {"id": agent_id, "offer": offer_seconds},
    ).one_or_none()
    return None if row is None else StaticJob(**row._mapping)


_BIND = sql(f"""
    WITH wanted AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS w(job_id text, agent_id text)
    ), free AS (
        SELECT a.agent_id, a.gateway, w.job_id FROM wanted w JOIN agents a USING (agent_id)
        WHERE a.spawn_id IS NULL AND a.unseen_since IS NULL AND {FREE}
        FOR NO KEY UPDATE OF a SKIP LOCKED
    )
    UPDATE scale_requests r SET
        state = 'assigned', decided_at = clock_timestamp(), routed_scaler = NULL,
        wait_code = 'undecided', wait_reason = '', static_agent = free.agent_id,
        static_deadline_at = clock_timestamp() + make_interval(secs => :offer),
        static_due_at = clock_timestamp() + make_interval(secs => :offer), static_due_count = 0
    FROM free WHERE r.job_id = free.job_id AND r.state = 'waiting'
    RETURNING r.static_agent AS agent_id, r.job_id, r.run_id, free.gateway
""")


def bind(
    connection: Connection, offers: Iterable[tuple[str, str]], *, offer_seconds: float
) -> list[Bound]:
    """Give waiting jobs (job id, agent id) to agents that are still free and still seen.

    The requests must be locked by the caller; those of agents that were not got stay as
    they are.
    """
    rows = as_rows({"job_id": job, "agent_id": agent} for job, agent in offers)
    found = connection.execute(_BIND, {"rows": rows, "offer": offer_seconds})
    return [Bound(**row._mapping) for row in found]


def start_running(
    connection: Connection, *, job_id: str, agent_id: str, lifetime_seconds: float
) -> Mapping[str, object] | None:
    """Commit a job to the agent that accepted it; its sealed payload, or None.

    None means the agent may not have it. One that asks again gets the payload again.
    """
    row = connection.execute(
        sql("""
            UPDATE scale_requests SET
                state = 'running', static_due_count = 0,
                static_deadline_at = CASE WHEN state = 'running' THEN static_deadline_at
                    ELSE clock_timestamp() + make_interval(secs => :lifetime) END,
                static_due_at = CASE WHEN state = 'running' THEN static_due_at
                    ELSE clock_timestamp() + make_interval(secs => :lifetime) END
            WHERE job_id = :job AND static_agent = :agent AND cancel_reason IS NULL
            RETURNING sealed_payload
        """),
        {"job": job_id, "agent": agent_id, "lifetime": lifetime_seconds},
    ).one_or_none()
    return None if row is None else dict(row.sealed_payload or {})


def give_time_to_stop(connection: Connection, job_id: str, *, seconds: float) -> None:
    """A running job was called off: bound how long that takes; a repeat does not prolong it."""
    connection.execute(
        sql("""
            UPDATE scale_requests SET
                static_deadline_at = least(
                    static_deadline_at, clock_timestamp() + make_interval(secs => :grace)),
                static_due_at = least(
                    static_due_at, clock_timestamp() + make_interval(secs => :grace))
            WHERE job_id = :job AND state = 'running' AND static_agent IS NOT NULL
        """),
        {"job": job_id, "grace": seconds},
    )


def holder_of(connection: Connection, job_id: str) -> str | None:
    """Lock the request of a job and return the static agent that has it."""
    return connection.execute(
        sql("SELECT static_agent FROM scale_requests WHERE job_id = :job FOR UPDATE"),
        {"job": job_id},
    ).scalar_one_or_none()


def lock_job(connection: Connection, *, agent_id: str, job_id: str) -> bool:
    """Lock a request that this agent has; False when it has it not (any more)."""
    row = connection.execute(
        sql("""
            SELECT 1 FROM scale_requests
            WHERE job_id = :job AND static_agent = :agent FOR UPDATE
        """),
        {"job": job_id, "agent": agent_id},
    )
    return row.scalar_one_or_none() is not None


def offered_to(connection: Connection, agent_id: str) -> str | None:
    """Lock and return the job that was offered to an agent and that it did not accept."""
    return connection.execute(
        sql("""
            SELECT job_id FROM scale_requests
            WHERE static_agent = :agent AND state = 'assigned' FOR UPDATE
        """),
        {"agent": agent_id},
    ).scalar_one_or_none()


def _first(most: int) -> str:
    """The longest overdue; how many is part of the text, as for spawns."""
    return f"""
        SELECT job_id FROM scale_requests WHERE static_due_at <= (SELECT clock_timestamp())
        ORDER BY static_due_at LIMIT {most:d}
    """


IS_ANY_DUE = f"({_first(1)}) IS NOT NULL"
"""Whether `pick_due` would find something that nobody else works on, as an expression."""

_PICK = """
    WITH picked AS (
        {first} FOR UPDATE SKIP LOCKED
    ), seen AS (
        SELECT r.job_id, a.unseen_since, a.gateway, a.agent_id IS NULL AS lost,
               g.dead_at IS NOT NULL OR a.gateway IS NULL AS adopter_dead
        FROM picked JOIN scale_requests r USING (job_id)
        LEFT JOIN agents a ON a.agent_id = r.static_agent
        LEFT JOIN gateways g ON g.incarnation = a.gateway
    )
    UPDATE scale_requests r SET
        static_due_count = least(r.static_due_count + 1, 30),
        static_due_at = clock_timestamp() + make_interval(secs => least(
            :pause * 2 ^ least(r.static_due_count, 30), :longest))
    FROM seen WHERE r.job_id = seen.job_id
    RETURNING r.static_agent AS agent_id, r.job_id, r.state = 'running' AS running,
        r.state = 'running' AND r.cancel_reason IS NOT NULL AS cancelled,
        r.static_deadline_at <= clock_timestamp() AS past_deadline,
        CASE WHEN seen.lost THEN 'infinity'::float8
             ELSE extract(epoch FROM clock_timestamp() - seen.unseen_since) END AS seconds_absent,
        seen.adopter_dead, CASE WHEN seen.unseen_since IS NULL THEN seen.gateway END AS gateway
"""


def pick_due(connection: Connection, *, most: int, first_pause: float) -> list[StaticDue]:
    """Pick up to `most` due jobs, the longest overdue first; others skip what is picked."""
    rows = connection.execute(
        sql(_PICK.format(first=_first(most))), {"pause": first_pause, "longest": LONGEST_PAUSE}
    )
    return [
        StaticDue(
            agent_id=row.agent_id,
            job_id=row.job_id,
            running=row.running,
            past_deadline=row.past_deadline,
            seconds_absent=None if row.seconds_absent is None else float(row.seconds_absent),
            adopter_dead=row.adopter_dead,
            gateway=row.gateway,
            cancelled=row.cancelled,
        )
        for row in rows
    ]


def shift_clocks(connection: Connection, seconds: float) -> None:
    """Move the deadlines of their jobs by an unwatched time."""
    connection.execute(
        sql("""
            UPDATE scale_requests
            SET static_deadline_at = static_deadline_at + make_interval(secs => :gap)
            WHERE static_agent IS NOT NULL
        """),
        {"gap": seconds},
    )
