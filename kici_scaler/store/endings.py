"""The way of a spawn into its end: the one update, and the lease on confirming it.

A spawn that was only reserved has nothing to tear down and goes at once. Every other
becomes `destroying` and keeps counting against the caps until a backend worker has
confirmed that its compute is gone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.store import outcomes
from kici_scaler.store.bulk import sql
from kici_scaler.store.retiring import OVER_WITH_ITS_LAST
from kici_scaler.store.warm_books import WISHES, Wishes


@dataclass(frozen=True, slots=True)
class Ended:
    """A spawn that this transaction moved towards its end, as it was before."""

    agent_id: str
    was: SpawnState
    scaler: str
    backend_type: str
    machine_id: str | None
    job_id: str | None
    run_id: str | None
    gateway: str | None
    is_reachable: bool = True
    """Whether somebody may tear it down: its machine was heard of lately, or it has none."""


_WITHDRAW = sql("""
    DELETE FROM spawns WHERE agent_id = ANY(:ids) AND state = 'reserved'
    RETURNING agent_id, state AS was, scaler, backend_type, machine_id, job_id, run_id,
              CAST(NULL AS text) AS gateway
""", "ids")  # fmt: skip


def reserved_where_nothing_starts(
    connection: Connection, *, machine_id: str | None = None, stale_seconds: float = 0.0
) -> list[str]:
    """Reservations of which nothing exists, on machines that start nothing.

    Those of the given machine, or else of every machine that is gone, draining, or whose
    worker has not been heard of for `stale_seconds`.
    """
    if machine_id is not None:
        where = "s.machine_id = :machine"
    else:
        where = (
            "s.machine_id IS NOT NULL AND (m.machine_id IS NULL OR m.state <> 'up' OR"
            " m.last_heartbeat < clock_timestamp() - make_interval(secs => :stale))"
        )
    rows = connection.execute(
        sql(f"""
            SELECT s.agent_id FROM spawns s LEFT JOIN machines m
              ON m.machine_id = s.machine_id AND m.backend_type = s.backend_type
            WHERE s.state = 'reserved' AND {where} LIMIT 1000
        """),
        {"machine": machine_id, "stale": stale_seconds},
    )
    return list(rows.scalars())


_END = sql(f"""
    WITH old AS (
        SELECT agent_id, state FROM spawns
        WHERE agent_id = ANY(:ids) AND state = ANY(:states)
        ORDER BY agent_id FOR UPDATE
    ), told AS (
        SELECT agent_id, gateway FROM agents WHERE agent_id = ANY(:ids) AND unseen_since IS NULL
    ), ended AS (
        UPDATE spawns s SET
            state = 'destroying', destroy_reason = :reason, condemned_why = :why,
            destroying_at = clock_timestamp(),
            deadline_at = clock_timestamp() + make_interval(secs => :quarantine),
            due_at = greatest(clock_timestamp(), s.lease_expires_at), due_count = 0, attempts = 0,
            retry_at = NULL
        FROM old LEFT JOIN told USING (agent_id)
        WHERE s.agent_id = old.agent_id
        RETURNING s.*, old.state AS was, told.gateway
    ), recorded AS ({outcomes.WRITE.format(spawns="ended")}
    ), revoked AS (
        DELETE FROM agent_tokens t USING ended WHERE t.agent_id = ended.agent_id
    )
    SELECT s.agent_id, s.was, s.scaler, s.backend_type, s.machine_id, s.job_id, s.run_id,
           s.gateway, s.machine_id IS NULL OR EXISTS (
               SELECT 1 FROM machines m
               WHERE m.machine_id = s.machine_id AND m.backend_type = s.backend_type
                 AND m.state <> 'unreachable' AND m.last_heartbeat
                     > clock_timestamp() - make_interval(secs => :stale)) AS is_reachable
    FROM ended s
""", "ids", "states", "tail")  # fmt: skip


def withdraw(connection: Connection, agent_ids: Sequence[str]) -> list[Ended]:
    """Give back reservations of which nothing exists yet."""
    return _ended(connection.execute(_WITHDRAW, {"ids": list(agent_ids)}))


def begin(
    connection: Connection,
    agent_ids: Sequence[str],
    *,
    states: Collection[SpawnState],
    reason: DestroyReason,
    why: str,
    quarantine_seconds: float,
    machine_stale_seconds: float = 30.0,
    failed: bool = False,
    log_tail: Sequence[str] = (),
) -> list[Ended]:
    """Move these spawns from `states` to destroying; those elsewhere are left alone.

    Their outcomes tell of it. Their tokens go too; one stored meanwhile goes with the row.
    """
    rows = connection.execute(
        _END,
        {
            "ids": list(agent_ids),
            "states": [state.value for state in states],
            "reason": reason.value,
            "why": why,
            "quarantine": quarantine_seconds,
            "stale": machine_stale_seconds,
            "failed": failed,
            "tail": list(log_tail),
        },
    )
    return _ended(rows)


def _ended(rows: object) -> list[Ended]:
    return [
        Ended(**{**row._mapping, "was": SpawnState(row.was)})
        for row in rows  # type: ignore[attr-defined]  # a cursor result
    ]


@dataclass(frozen=True, slots=True)
class TakenDestroy:
    """A spawn whose compute this process may remove until its lease ends."""

    agent_id: str
    token: int
    scaler: str
    backend_type: str
    machine_id: str | None
    pool: str | None
    revision_id: int
    label_set_index: int
    label_set: tuple[str, ...]
    targets: tuple[str, ...]
    reason: DestroyReason
    ref: Mapping[str, str] | None
    job_id: str | None
    run_id: str | None
    lapsed: bool = False
    """Somebody else's lease on it ran out."""


_TAKE = """
    WITH chosen AS (
        SELECT agent_id, lease_holder IS NOT NULL AS lapsed FROM spawns
        WHERE {here} AND backend_type = :kind AND state IN ('destroying', 'quarantined')
          AND (lease_expires_at IS NULL OR lease_expires_at < clock_timestamp())
          AND (retry_at IS NULL OR retry_at <= clock_timestamp())
        ORDER BY due_at LIMIT :most FOR UPDATE SKIP LOCKED
    )
    UPDATE spawns s SET
        lease_token = nextval('lease_tokens'), lease_holder = :holder,
        lease_expires_at = clock_timestamp() + make_interval(secs => :lease),
        due_at = clock_timestamp() + make_interval(secs => :lease),
        attempts = s.attempts + 1
    FROM chosen WHERE s.agent_id = chosen.agent_id
    RETURNING s.agent_id, s.lease_token AS token, s.scaler, s.backend_type, s.machine_id, s.pool,
        s.revision_id, s.label_set_index, s.label_set, s.targets, s.destroy_reason AS reason,
        s.backend_ref AS ref, s.job_id, s.run_id, chosen.lapsed
"""


def take(
    connection: Connection,
    *,
    kind: str,
    machine_id: str | None,
    holder: str,
    most: int,
    lease_seconds: float,
) -> list[TakenDestroy]:
    """Take spawns to be destroyed here; one under a spawn lease waits until that ends."""
    here = "machine_id IS NULL" if machine_id is None else "machine_id = :machine"
    rows = connection.execute(
        sql(_TAKE.format(here=here)),
        {
            "kind": kind,
            "machine": machine_id,
            "holder": holder,
            "most": most,
            "lease": lease_seconds,
        },
    )
    return [
        TakenDestroy(
            **{
                **row._mapping,
                "label_set": tuple(row.label_set),
                "targets": tuple(row.targets),
                "reason": DestroyReason(row.reason),
            }
        )
        for row in rows
    ]


_GONE = sql(f"""
    WITH gone AS (
        DELETE FROM spawns
        WHERE agent_id = :id AND lease_token = :token AND state IN ('destroying', 'quarantined')
        RETURNING agent_id, scaler
    ), {OVER_WITH_ITS_LAST}, told AS (
        UPDATE outcomes o SET
            gone_at = clock_timestamp(), updated_at = clock_timestamp(),
            timings = o.timings || jsonb_build_object('gone', clock_timestamp()),
            exit_cause = coalesce(CAST(:cause AS jsonb), o.exit_cause),
            log_tail = CASE WHEN cardinality(o.log_tail) = 0 THEN CAST(:tail AS text[])
                            ELSE o.log_tail END
        FROM gone WHERE o.agent_id = gone.agent_id
    ), revoked AS (DELETE FROM agent_tokens t USING gone WHERE t.agent_id = gone.agent_id)
    SELECT {WISHES} FROM gone
""", "tail")  # fmt: skip


def confirm_gone(
    connection: Connection,
    *,
    agent_id: str,
    token: int,
    exit_cause: Mapping[str, object] | None,
    log_tail: Sequence[str],
) -> Wishes | None:
    """Delete the row of compute that is confirmed gone; None when the lease was lost.

    Says who could use the room.
    """
    row = connection.execute(
        _GONE,
        {
            "id": agent_id,
            "token": token,
            "cause": None if exit_cause is None else json.dumps(dict(exit_cause)),
            "tail": list(log_tail),
        },
    ).one_or_none()
    return None if row is None else Wishes(**row._mapping)


def postpone(
    connection: Connection, *, agent_id: str, token: int, pause_seconds: float, most_seconds: float
) -> SpawnState | None:
    """Give a destroy back for a later try, with doubling pauses; None when the lease was lost."""
    state = connection.execute(
        sql("""
            UPDATE spawns SET lease_holder = NULL, lease_expires_at = NULL,
                due_at = clock_timestamp() + pause.length,
                retry_at = clock_timestamp() + pause.length
            FROM (SELECT make_interval(secs => least(:pause * 2 ^ least(attempts - 1, 20), :most))
                         AS length
                  FROM spawns WHERE agent_id = :id) AS pause
            WHERE agent_id = :id AND lease_token = :token AND lease_holder IS NOT NULL
            RETURNING state
        """),
        {"id": agent_id, "token": token, "pause": pause_seconds, "most": most_seconds},
    ).scalar_one_or_none()
    return None if state is None else SpawnState(state)


def quarantine(connection: Connection, agent_ids: Sequence[str]) -> list[str]:
    """Set spawns aside that could not be confirmed gone in time; they still count."""
    rows = connection.execute(
        sql(
            """
            UPDATE spawns SET state = 'quarantined', quarantined_at = clock_timestamp(),
                deadline_at = NULL
            WHERE agent_id = ANY(:ids) AND state = 'destroying'
              AND deadline_at <= clock_timestamp()
            RETURNING agent_id
            """,
            "ids",
        ),
        {"ids": list(agent_ids)},
    )
    return list(rows.scalars())
