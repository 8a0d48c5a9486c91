"""The due rows: what the sweep looks at, and nothing else.

Picking a row pushes its next look back with doubling pauses in the same statement, so a
sweep that dies has cost one pause, and a row that nobody can help is not asked for often.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.judgement import Due
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store.bulk import sql

LONGEST_PAUSE = 60.0
LONGEST_PAUSE_UNSEEN = 15.0
"""Where the machine is asked whether an agent still runs: its job waits for the answer, and a
hint that got lost or a runtime that was busy must not make that a minute."""
LONGEST_PAUSE_QUARANTINED = 3_600.0


@dataclass(frozen=True, slots=True)
class DueRow:
    """A due spawn, and the gateway that could be told about it."""

    due: Due
    gateway: str | None


def _first(most: int) -> str:
    """The longest overdue.

    How many is part of the text: planned for any number, a tenth of all rows would be expected,
    and where many live the server would rather plan anew each time.
    """
    return f"""
        SELECT agent_id FROM spawns WHERE due_at <= (SELECT clock_timestamp())
        ORDER BY due_at LIMIT {most:d}
    """


IS_ANY_DUE = f"({_first(1)}) IS NOT NULL"
"""Whether `pick` would find something that nobody else works on, as an expression.

Not EXISTS: that asks for any row, and the first one of the table seems to be the cheapest.
"""

_PICK = """
    WITH picked AS (
        {first} FOR UPDATE SKIP LOCKED
    ), seen AS (
        SELECT s.agent_id, a.unseen_since, a.gateway,
               s.state = 'busy' AND EXISTS (SELECT 1 FROM scale_requests r WHERE
                   r.job_id = s.job_id AND r.cancel_reason IS NOT NULL) AS cancelled,
               g.dead_at IS NOT NULL OR a.gateway IS NULL AS adopter_dead,
               s.machine_id IS NULL OR coalesce(m.state <> 'unreachable' AND m.last_heartbeat
                   > clock_timestamp() - make_interval(secs => :stale), false) AS reachable
        FROM picked JOIN spawns s USING (agent_id)
        LEFT JOIN agents a ON a.spawn_id = s.agent_id
        LEFT JOIN gateways g ON g.incarnation = a.gateway
        LEFT JOIN machines m ON m.machine_id = s.machine_id AND m.backend_type = s.backend_type
    )
    UPDATE spawns s SET
        due_count = least(s.due_count + 1, 30),
        due_at = clock_timestamp() + make_interval(secs => least(
            :pause * 2 ^ least(s.due_count, 30),
            CAST(CASE WHEN s.state = 'quarantined' THEN :longest_quarantined
                      WHEN s.state IN ('booting', 'idle', 'busy') THEN :longest_unseen
                      ELSE :longest END AS double precision)))
    FROM seen WHERE s.agent_id = seen.agent_id
    RETURNING s.agent_id, s.state, s.scaler, s.backend_type, s.machine_id, s.job_id, s.attempts,
        coalesce(s.deadline_at <= clock_timestamp(), false) AS past_deadline,
        coalesce(s.lease_expires_at > clock_timestamp(), false) AS lease_held,
        seen.reachable AS machine_reachable,
        extract(epoch FROM clock_timestamp() - seen.unseen_since) AS seconds_absent,
        seen.adopter_dead, seen.cancelled,
        CASE WHEN seen.unseen_since IS NULL THEN seen.gateway END AS gateway
"""


def pick(
    connection: Connection, *, most: int, first_pause: float, machine_stale_seconds: float
) -> list[DueRow]:
    """Pick up to `most` due spawns, the longest overdue first; others skip what is picked."""
    rows = connection.execute(
        sql(_PICK.format(first=_first(most))),
        {
            "pause": first_pause,
            "stale": machine_stale_seconds,
            "longest": LONGEST_PAUSE,
            "longest_unseen": LONGEST_PAUSE_UNSEEN,
            "longest_quarantined": LONGEST_PAUSE_QUARANTINED,
        },
    )
    return [
        DueRow(
            Due(
                agent_id=row.agent_id,
                state=SpawnState(row.state),
                scaler=row.scaler,
                backend_type=row.backend_type,
                machine_id=row.machine_id,
                job_id=row.job_id,
                past_deadline=row.past_deadline,
                lease_held=row.lease_held,
                attempts=row.attempts,
                machine_reachable=row.machine_reachable,
                seconds_absent=None if row.seconds_absent is None else float(row.seconds_absent),
                adopter_dead=row.adopter_dead,
                cancelled=row.cancelled,
            ),
            row.gateway,
        )
        for row in rows
    ]


def oldest_overdue_seconds(connection: Connection) -> float:
    """How long the longest overdue row has waited to be looked at; 0 when none is due."""
    value = connection.execute(
        sql(
            "SELECT extract(epoch FROM clock_timestamp() - min(due_at)) FROM spawns"
            " WHERE due_at <= (SELECT clock_timestamp())"
        )
    ).scalar_one_or_none()
    return 0.0 if value is None else float(value)
