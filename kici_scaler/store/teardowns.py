"""The end of provisions: who is owed a scale-down, and when a provision is gone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.delivery import Teardown
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store.bulk import sql
from kici_scaler.store.retiring import OVER_WITH_ITS_LAST


def call_off_scale_ups(
    connection: Connection, agent_ids: Sequence[str], *, why: str, dead_letter: bool = False
) -> None:
    """Close the scale-ups that are still open; their codes are erased.

    One whose try is on its way may still be acted on.
    """
    connection.execute(
        sql(
            """
            UPDATE event_deliveries SET
                state = CASE WHEN may_have_acted OR attempt_open
                             THEN 'unknown' ELSE 'not-done' END,
                sealed_code = NULL, closed_at = clock_timestamp(),
                last_error = concat_ws('; ', last_error, CAST(:why AS text)),
                dead_letter = :dead AND attempts > 0
            WHERE agent_id = ANY(:ids) AND kind = 'scale-up' AND state = 'pending'
            """,
            "ids",
        ),
        {"ids": list(agent_ids), "why": why, "dead": dead_letter},
    )


_OWE = """
    INSERT INTO event_deliveries (agent_id, scaler, kind, target, round, reason, due_at)
    SELECT s.agent_id, s.scaler, 'scale-down', t.target, 1 + coalesce((
               SELECT max(e.round) FROM event_deliveries e
               WHERE e.agent_id = s.agent_id AND e.kind = 'scale-down'), 0),
           s.destroy_reason, clock_timestamp() + make_interval(secs => :hint_after)
    FROM spawns s CROSS JOIN LATERAL ({targets}) AS t(target, place)
    WHERE s.agent_id = ANY(:ids) AND s.state IN ('destroying', 'quarantined')
    ORDER BY s.agent_id, t.place
    RETURNING agent_id
"""
_REACHED = """
    SELECT e.target, e.id FROM event_deliveries e
    WHERE e.agent_id = s.agent_id AND e.kind = 'scale-up' AND e.state IN ('done', 'unknown')
"""
_RECORDED = "SELECT * FROM unnest(s.targets) WITH ORDINALITY"
_OWE_REACHED = sql(_OWE.format(targets=_REACHED), "ids")
_OWE_RECORDED = sql(_OWE.format(targets=_RECORDED), "ids")


def owe_scale_downs(
    connection: Connection, agent_ids: Sequence[str], *, hint_after: float
) -> frozenset[str]:
    """A scale-down to every target that may have acted on its scale-up; the agents with any."""
    values = {"ids": list(agent_ids), "hint_after": hint_after}
    return frozenset(connection.execute(_OWE_REACHED, values).scalars())


def owe_to_recorded_targets(
    connection: Connection, agent_ids: Sequence[str], *, hint_after: float
) -> frozenset[str]:
    """A scale-down to every target recorded on the spawn; the agents with any."""
    values = {"ids": list(agent_ids), "hint_after": hint_after}
    return frozenset(connection.execute(_OWE_RECORDED, values).scalars())


def without_deliveries(connection: Connection, agent_ids: Sequence[str]) -> list[str]:
    """Of these provisions, the ones of whose scale-up nothing is recorded at all.

    Those that a backend made itself (a rehearsal) are its own to take away.
    """
    rows = connection.execute(
        sql(
            """
            SELECT s.agent_id FROM spawns s
            WHERE s.agent_id = ANY(:ids) AND s.backend_ref IS NULL
              AND coalesce(s.booting_at, s.idle_at) IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM event_deliveries e WHERE e.agent_id = s.agent_id)
            """,
            "ids",
        ),
        {"ids": list(agent_ids)},
    )
    return list(rows.scalars())


def withdraw_scale_down(connection: Connection, agent_id: str, target: str) -> None:
    """Nothing is owed to this target after all; a scale-down that nobody tried yet goes."""
    connection.execute(
        sql("""
            DELETE FROM event_deliveries
            WHERE agent_id = :id AND target = :target AND kind = 'scale-down'
              AND state = 'pending' AND attempts = 0
        """),
        {"id": agent_id, "target": target},
    )


@dataclass(frozen=True, slots=True)
class EndingProvision:
    """A provision on its way out, locked."""

    agent_id: str
    state: SpawnState
    teardown: Teardown
    unused: bool
    """It never had a job, so a warm pool may miss it."""


_FACTS = """
    SELECT s.agent_id, s.state, s.job_id IS NULL AS unused, s.farewell_at IS NOT NULL AS told,
           extract(epoch FROM clock_timestamp() - s.destroying_at) AS since_begun,
           EXISTS (SELECT 1 FROM agents a
                   WHERE a.spawn_id = s.agent_id AND a.unseen_since IS NULL) AS connected,
           d.unanswered, extract(epoch FROM clock_timestamp() - d.answered_at) AS since_answered
    FROM spawns s CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE e.state = 'pending') AS unanswered,
               max(e.closed_at) FILTER (WHERE e.state = 'done') AS answered_at
        FROM event_deliveries e WHERE e.agent_id = s.agent_id AND e.kind = 'scale-down'
    ) AS d
    WHERE s.backend_type = 'event' AND s.state IN ('destroying', 'quarantined') AND {which}
"""


def ending(connection: Connection, agent_id: str) -> EndingProvision | None:
    """How the end of a provision stands, its spawn locked; None when it is not ending."""
    statement = f"{_FACTS.format(which='s.agent_id = :id')} FOR NO KEY UPDATE OF s"
    rows = connection.execute(sql(statement), {"id": agent_id})
    return next((_ending(dict(row._mapping)) for row in rows), None)


def due(connection: Connection, *, most: int) -> list[str]:
    """Ending provisions whose time has come to be looked at."""
    rows = connection.execute(
        sql("""
            SELECT agent_id FROM spawns
            WHERE backend_type = 'event' AND state IN ('destroying', 'quarantined')
              AND backend_ref IS NULL AND (retry_at IS NULL OR retry_at <= clock_timestamp())
            ORDER BY due_at LIMIT :most
        """),
        {"most": most},
    )
    return list(rows.scalars())


def _ending(row: Mapping[str, object]) -> EndingProvision:
    answered = row["since_answered"]
    return EndingProvision(
        str(row["agent_id"]),
        SpawnState(str(row["state"])),
        Teardown(
            unanswered=int(str(row["unanswered"])),
            since_begun=float(str(row["since_begun"])),
            since_answered=None if answered is None else float(str(answered)),
            connected=bool(row["connected"]),
            told=bool(row["told"]),
        ),
        unused=bool(row["unused"]),
    )


def look_again(connection: Connection, agent_id: str, *, pause_seconds: float) -> None:
    """Nothing to conclude yet."""
    connection.execute(
        sql("""
            UPDATE spawns SET retry_at = clock_timestamp() + make_interval(secs => :pause),
                due_at = clock_timestamp() + make_interval(secs => :pause), due_count = 0
            WHERE agent_id = :id AND state IN ('destroying', 'quarantined')
        """),
        {"id": agent_id, "pause": pause_seconds},
    )


def say_farewell(connection: Connection, agent_id: str, *, cause: str) -> bool:
    """Let the agent be told to go, and keep on its outcome that it had to be; once."""
    told = connection.execute(
        sql("""
            UPDATE spawns SET farewell_at = clock_timestamp()
            WHERE agent_id = :id AND state IN ('destroying', 'quarantined')
              AND farewell_at IS NULL
        """),
        {"id": agent_id},
    )
    if told.rowcount == 1:
        connection.execute(
            sql("UPDATE outcomes SET exit_cause = CAST(:cause AS jsonb) WHERE agent_id = :id"),
            {"id": agent_id, "cause": json.dumps({"kind": "told-to-go", "detail": cause})},
        )
    return told.rowcount == 1


def set_aside(connection: Connection, agent_id: str) -> list[str]:
    """The scale-downs of a quarantined provision count as undeliverable; targets new to that."""
    rows = connection.execute(
        sql("""
            UPDATE event_deliveries SET dead_letter = true
            WHERE agent_id = :id AND kind = 'scale-down' AND state = 'pending'
              AND NOT dead_letter
            RETURNING target
        """),
        {"id": agent_id},
    )
    return list(rows.scalars())


def gone(connection: Connection, agent_id: str) -> bool:
    """Delete the row of a provision that is gone; its outcome is complete."""
    row = connection.execute(
        sql(f"""
            WITH gone AS (
                DELETE FROM spawns
                WHERE agent_id = :id AND state IN ('destroying', 'quarantined')
                RETURNING agent_id, scaler
            ), {OVER_WITH_ITS_LAST}
            UPDATE outcomes o SET
                gone_at = clock_timestamp(), updated_at = clock_timestamp(),
                timings = o.timings || jsonb_build_object('gone', clock_timestamp())
            FROM gone WHERE o.agent_id = gone.agent_id
            RETURNING o.agent_id
        """),
        {"id": agent_id},
    )
    return row.scalar_one_or_none() is not None


def rearm(connection: Connection, agent_id: str, *, interval: float, hint_after: float) -> bool:
    """A provision that was gone shows signs of life: its targets are asked once more.

    At most once an interval; False when nothing is owed, or it was asked for already.
    """
    rows = connection.execute(
        sql("""
            INSERT INTO event_deliveries (agent_id, scaler, kind, target, round, reason, due_at)
            SELECT o.agent_id, o.scaler, 'scale-down', t.target, 1 + coalesce((
                       SELECT max(e.round) FROM event_deliveries e
                       WHERE e.agent_id = o.agent_id AND e.kind = 'scale-down'), 0),
                   coalesce(o.destroy_reason, 'shutdown'),
                   clock_timestamp() + make_interval(secs => :hint_after)
            FROM outcomes o CROSS JOIN LATERAL unnest(o.targets) AS t(target)
            WHERE o.agent_id = :id AND o.backend_type = 'event' AND o.gone_at IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM spawns s WHERE s.agent_id = o.agent_id)
              AND NOT EXISTS (
                  SELECT 1 FROM event_deliveries e
                  WHERE e.agent_id = o.agent_id AND e.kind = 'scale-down'
                    AND (e.state = 'pending' OR (e.created_at >= o.gone_at AND e.created_at
                         > clock_timestamp() - make_interval(secs => :interval))))
            ON CONFLICT DO NOTHING
        """),
        {"id": agent_id, "interval": interval, "hint_after": hint_after},
    )
    return rows.rowcount > 0
