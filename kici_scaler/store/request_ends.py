"""How scale requests run and end; each an update that only the right state allows.

Lock order everywhere: the spawn first, then its request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.request import RequestState
from kici_scaler.domain.windows import Windows
from kici_scaler.store import events
from kici_scaler.store.bulk import MOST_AT_ONCE, sql
from kici_scaler.store.events import NewEvent
from kici_scaler.store.settings import OF_CLUSTER, window

_PART = "static_agent = NULL, static_deadline_at = NULL, static_due_at = NULL"
_ERASE = f"sealed_payload = NULL, sealed_registry = NULL, finished_at = clock_timestamp(), {_PART}"

_LIFETIME = window("maximum_lifetime_seconds")


def start_running(
    connection: Connection, *, job_id: str, agent_id: str
) -> Mapping[str, object] | None:
    """Commit a job to the idle agent that accepted it; its sealed payload, or None.

    None means the agent may not have it: cancelled, given elsewhere, or torn down.
    An agent that asks again for the job it already runs gets the payload again.
    """
    row = connection.execute(
        sql(f"""
            WITH taken AS (
                UPDATE spawns s SET
                    state = 'busy', busy_at = coalesce(s.busy_at, clock_timestamp()),
                    deadline_at = CASE WHEN s.state = 'busy' THEN s.deadline_at
                        ELSE clock_timestamp() + make_interval(secs => {_LIFETIME}) END,
                    due_at = CASE WHEN s.state = 'busy' THEN s.due_at
                        ELSE clock_timestamp() + make_interval(secs => {_LIFETIME}) END,
                    due_count = 0
                FROM scale_requests r
                WHERE s.agent_id = :agent AND s.job_id = :job AND r.job_id = s.job_id
                  AND s.state IN ('idle', 'busy') AND r.state IN ('assigned', 'running')
                  AND r.cancel_reason IS NULL
                RETURNING s.job_id, r.state = 'assigned' AS is_first, s.scaler, s.warm,
                    r.enqueued_at, s.reserved_at, s.booting_at, s.idle_at, s.busy_at
            ), timed AS (
                INSERT INTO start_timings (scaler, warm, requested_at, reserved_at, spawned_at,
                    registered_at, started_at)
                SELECT scaler, warm, enqueued_at, reserved_at, booting_at, idle_at, busy_at
                FROM taken WHERE is_first
            )
            UPDATE scale_requests r SET state = 'running'
            FROM taken WHERE r.job_id = taken.job_id
            RETURNING r.sealed_payload
        """),
        {"agent": agent_id, "job": job_id},
    ).one_or_none()
    return None if row is None else dict(row.sealed_payload or {})


_FINISH = f"""
    UPDATE scale_requests SET state = :state, result = CAST(:result AS jsonb), {_ERASE}
    WHERE job_id = :job AND state = 'running'
"""


def finish(
    connection: Connection, *, job_id: str, state: RequestState, result: Mapping[str, object]
) -> bool:
    """End a running job with its true result; False when it has ended before."""
    values = {"state": state.value, "result": json.dumps(dict(result)), "job": job_id}
    return connection.execute(sql(_FINISH), values).rowcount == 1


@dataclass(frozen=True, slots=True)
class Reported:
    """What became of an agent's report that a job is over; its spawn is locked."""

    is_its_own: bool
    """Whether the job is the agent's."""
    is_done: bool
    """Whether the job ended by it."""
    windows: Windows


_REPORT = sql(f"""
    WITH its AS MATERIALIZED (
        SELECT job_id AS its_job FROM spawns WHERE agent_id = :agent FOR NO KEY UPDATE
    ), done AS (
        {_FINISH} AND EXISTS (SELECT FROM its WHERE its_job = :job) RETURNING run_id
    ), {events.append("done", run_id="done.run_id")}
    SELECT EXISTS (SELECT FROM its WHERE its_job = :job) AS is_its_own,
           EXISTS (SELECT FROM done) AS is_done, {OF_CLUSTER} AS of_cluster
""")


def report(
    connection: Connection,
    *,
    agent_id: str,
    job_id: str,
    state: RequestState,
    result: Mapping[str, object],
    event: NewEvent,
) -> Reported:
    """As `finish`, of a job that is this agent's, with the event that tells of it.

    The event's run is the request's.

    Whoever accepted the job is committed before its agent can report an end, so what the
    statement saw before it waited for the spawn is not too old for that.
    """
    row = connection.execute(
        _REPORT,
        {
            "agent": agent_id,
            "job": job_id,
            "state": state.value,
            "result": json.dumps(dict(result)),
            "events": events.as_parameter([event]),
        },
    ).one()
    return Reported(row.is_its_own, row.is_done, Windows.of(row.of_cluster or {}))


@dataclass(frozen=True, slots=True)
class Bereaved:
    """A request that lost its spawn, and what it became."""

    job_id: str
    run_id: str
    state: RequestState


def bereave(connection: Connection, job_ids: Sequence[str], *, cause: str) -> list[Bereaved]:
    """The spawns of these jobs ended without a result.

    A job that nobody accepted waits again, a bounded number of times; one that ran fails,
    since it is never run twice; one that was being cancelled is cancelled.
    """
    rows = connection.execute(
        sql(
            f"""
            UPDATE scale_requests r SET
                state = next.state, {_PART},
                requeues = r.requeues + CASE WHEN next.state = 'waiting' THEN 1 ELSE 0 END,
                last_provisioning_error = CASE
                    WHEN r.state = 'assigned' AND next.state <> 'cancelled' THEN :cause
                    ELSE r.last_provisioning_error END,
                wait_code = CASE WHEN next.state = 'waiting' THEN 'undecided'
                                 ELSE r.wait_code END,
                wait_reason = CASE WHEN next.state = 'waiting'
                                   THEN 'waits again: ' || :cause ELSE r.wait_reason END,
                routed_scaler = CASE WHEN next.state = 'waiting' THEN NULL
                                     ELSE r.routed_scaler END,
                result = CASE next.state
                    WHEN 'failed' THEN jsonb_build_object('status', 'error', 'error', :cause)
                    WHEN 'cancelled' THEN jsonb_build_object(
                        'status', 'cancelled', 'error', CASE WHEN r.state = 'running'
                            THEN r.cancel_reason || '; ' || :cause ELSE r.cancel_reason END)
                    ELSE r.result END,
                sealed_payload = CASE WHEN next.state = 'waiting' THEN r.sealed_payload END,
                sealed_registry = CASE WHEN next.state = 'waiting' THEN r.sealed_registry END,
                finished_at = CASE WHEN next.state <> 'waiting' THEN clock_timestamp() END
            FROM (
                SELECT job_id, CASE
                    WHEN cancel_reason IS NOT NULL THEN 'cancelled'
                    WHEN state = 'assigned' AND requeues < max_requeues THEN 'waiting'
                    ELSE 'failed' END AS state
                FROM scale_requests
                WHERE job_id = ANY(:ids) AND state IN ('assigned', 'running')
                ORDER BY job_id FOR UPDATE
            ) AS next
            WHERE r.job_id = next.job_id
            RETURNING r.job_id, r.run_id, r.state
            """,
            "ids",
        ),
        {"ids": list(job_ids), "cause": cause},
    )
    return [Bereaved(row.job_id, row.run_id, RequestState(row.state)) for row in rows]


def release(connection: Connection, job_ids: Sequence[str], *, why: str) -> list[str]:
    """Assigned jobs wait again through no fault of theirs: no requeue is counted."""
    rows = connection.execute(
        sql(
            """
            UPDATE scale_requests
            SET state = 'waiting', wait_code = 'undecided', wait_reason = :why,
                routed_scaler = NULL
            WHERE job_id = ANY(:ids) AND state = 'assigned' AND cancel_reason IS NULL
            RETURNING job_id
            """,
            "ids",
        ),
        {"ids": list(job_ids), "why": why},
    )
    return list(rows.scalars())


def spawn_of(connection: Connection, job_id: str) -> str | None:
    """Lock and return the live spawn that stands for a job."""
    return connection.execute(
        sql("""
            SELECT agent_id FROM spawns
            WHERE job_id = :job AND state NOT IN ('destroying', 'quarantined') FOR UPDATE
        """),
        {"job": job_id},
    ).scalar_one_or_none()


def give_time_to_stop(connection: Connection, agent_id: str, *, seconds: float) -> None:
    """A busy agent was told to stop: bound how long that takes; a repeat does not prolong it."""
    connection.execute(
        sql("""
            UPDATE spawns SET
                deadline_at = least(deadline_at, clock_timestamp() + make_interval(secs => :grace)),
                due_at = least(due_at, clock_timestamp() + make_interval(secs => :grace))
            WHERE agent_id = :id AND state = 'busy'
        """),
        {"id": agent_id, "grace": seconds},
    )


# Without a named conflict: a job's second unique key would otherwise be an error in a race.
_ENTOMB = sql("""
    INSERT INTO scale_requests
        (job_id, run_id, digest, state, labels, max_requeues, cancel_reason, finished_at)
    VALUES (:job, '', '', 'cancelled', '{}', 0, :reason, clock_timestamp())
    ON CONFLICT DO NOTHING
""")


def cancel(connection: Connection, *, job_id: str, reason: str) -> RequestState:
    """Cancel a request; returns its state after that.

    Unknown jobs leave a tombstone, so that a request which arrives later finds itself
    cancelled. Waiting ones end at once; assigned and running ones are marked, and end
    with their spawn. What is over stays as it is.
    """
    values = {"job": job_id, "reason": reason}
    if connection.execute(_ENTOMB, values).rowcount:
        return RequestState.CANCELLED
    state = connection.execute(
        sql("""
            UPDATE scale_requests r SET
                cancel_reason = CASE WHEN r.finished_at IS NULL
                    THEN coalesce(r.cancel_reason, :reason) ELSE r.cancel_reason END,
                state = CASE WHEN r.state = 'waiting' THEN 'cancelled' ELSE r.state END,
                result = CASE WHEN r.state = 'waiting' THEN jsonb_build_object(
                    'status', 'cancelled', 'error', CAST(:reason AS text)) ELSE r.result END,
                sealed_payload = CASE WHEN r.state = 'waiting' THEN NULL
                                      ELSE r.sealed_payload END,
                sealed_registry = CASE WHEN r.state = 'waiting' THEN NULL
                                       ELSE r.sealed_registry END,
                finished_at = CASE WHEN r.state = 'waiting' THEN clock_timestamp()
                                   ELSE r.finished_at END
            WHERE job_id = :job RETURNING state
        """),
        values,
    ).scalar_one()
    return RequestState(state)


def purge(connection: Connection, *, older_seconds: float) -> int:
    """Forget requests that ended longer ago than their retention and that no row names."""
    result = connection.execute(
        sql("""
            DELETE FROM scale_requests WHERE job_id = ANY(ARRAY(
                SELECT job_id FROM scale_requests r
                WHERE finished_at < (SELECT clock_timestamp() - make_interval(secs => :older))
                  AND NOT EXISTS (SELECT 1 FROM spawns s WHERE s.job_id = r.job_id)
                ORDER BY finished_at LIMIT :most))
        """),
        {"older": older_seconds, "most": MOST_AT_ONCE},
    )
    return result.rowcount
