"""Machines of fleets: which worker drives each, for as long as it says so.

A worker's own host is driven by that worker and by nobody else. A machine reached by SSH is
driven by whichever worker claimed it; a claim that is not renewed runs out, and another worker
takes the machine over. The claim keeps two workers from doing the same work twice; that doing
it twice would do no harm is the lease tokens' business.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql
from kici_scaler.store.machines import Announcement

KIND = "bare-metal"
"""The one type of scaler that has fleets."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A machine that a configuration names, with all that is needed to reach it."""

    machine_id: str
    address: str
    target: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Driven:
    """A machine that this worker drives until its claim runs out."""

    machine_id: str
    target: Mapping[str, object]
    is_listed: bool
    """Whether the configuration still names it."""
    was_taken_over: bool
    """Its former driver let its claim run out."""


_CLAIM = """
    WITH listed AS (
        SELECT * FROM jsonb_to_recordset(CAST(:listed AS jsonb))
            AS x (machine_id text, address text, target jsonb)
    ), before AS (
        SELECT machine_id, driver FROM machines WHERE backend_type = :kind
    ), mine AS (
        INSERT INTO machines AS m
            (machine_id, backend_type, boot_id, state, cpu_millis, memory_bytes, serves, address,
             target, note, driver, driver_until, last_heartbeat)
        SELECT machine_id, :kind, '', 'unreachable', 0, 0, '{}', address, target,
               'not reached yet', :me, clock_timestamp() + make_interval(secs => :lease),
               to_timestamp(0)
        FROM listed ORDER BY machine_id
        ON CONFLICT (machine_id, backend_type) DO UPDATE SET
            address = excluded.address, target = excluded.target, driver = excluded.driver,
            driver_until = excluded.driver_until
        WHERE m.address IS NOT NULL AND (m.driver IS NULL OR m.driver = excluded.driver
                                         OR m.driver_until < clock_timestamp())
        RETURNING m.machine_id, m.target, true AS is_listed
    ), left_over AS (
        UPDATE machines m SET driver = :me,
            driver_until = clock_timestamp() + make_interval(secs => :lease)
        WHERE backend_type = :kind AND address IS NOT NULL
          AND NOT machine_id = ANY(:named)
          AND (driver IS NULL OR driver = :me OR driver_until < clock_timestamp())
        RETURNING machine_id, target, false AS is_listed
    )
    SELECT found.*, coalesce(before.driver <> :me, false) AS was_taken_over
    FROM (SELECT * FROM mine UNION ALL SELECT * FROM left_over) AS found
    LEFT JOIN before USING (machine_id) ORDER BY machine_id
"""


def claim(
    connection: Connection,
    *,
    driver: str,
    listed: Sequence[Listed],
    named: Collection[str],
    lease_seconds: float,
) -> list[Driven]:
    """Claim what is free and renew what is this worker's; all that it drives from now on.

    Machines that no configuration names any more are claimed too, by what their rows say: what
    lives there has to be found and ended.

    Args:
        listed: the machines this worker is to drive.
        named: every machine the configuration in force names, for whichever worker.
    """
    rows = connection.execute(
        sql(_CLAIM, "named"),
        {
            "kind": KIND,
            "me": driver,
            "lease": lease_seconds,
            "named": sorted(named),
            "listed": json.dumps(
                [
                    {
                        "machine_id": each.machine_id,
                        "address": each.address,
                        "target": dict(each.target),
                    }
                    for each in listed
                ]
            ),
        },
    )
    return [Driven(**row._mapping) for row in rows]


def taken_names(connection: Connection, names: Collection[str]) -> list[str]:
    """Those of these names that are a worker's own host, which no fleet can have a machine of."""
    rows = connection.execute(
        sql(
            "SELECT machine_id FROM machines WHERE backend_type = :kind AND address IS NULL"
            " AND machine_id = ANY(:names) ORDER BY machine_id",
            "names",
        ),
        {"kind": KIND, "names": sorted(names)},
    )
    return list(rows.scalars())


def let_go(connection: Connection, *, driver: str, machine_ids: Collection[str]) -> None:
    """Give claims back, so that another worker need not wait for them to run out."""
    connection.execute(
        sql(
            """
            UPDATE machines SET driver = NULL, driver_until = NULL
            WHERE backend_type = :kind AND driver = :me AND machine_id = ANY(:ids)
            """,
            "ids",
        ),
        {"kind": KIND, "me": driver, "ids": sorted(machine_ids)},
    )


def announce(connection: Connection, machine: Announcement, *, driver: str) -> bool:
    """Say what a machine is that answers; False when this worker does not drive it any more.

    One that serves or is something else than before may serve what nothing served so far: those
    requests are undecided again.
    """
    rows = connection.execute(
        sql(
            """
            WITH before AS (
                SELECT os, arch, serves FROM machines
                WHERE machine_id = :id AND backend_type = :kind
            ), said AS (
                UPDATE machines m SET
                    boot_id = :boot_id, os = :os, arch = :arch, cpu_millis = :cpu_millis,
                    memory_bytes = :memory_bytes, serves = :serves, note = NULL,
                    last_heartbeat = clock_timestamp(), announced_at = clock_timestamp(),
                    state = CASE WHEN m.state = 'unreachable' THEN 'up' ELSE m.state END
                WHERE machine_id = :id AND backend_type = :kind AND driver = :me
                RETURNING 1
            ), undecided AS (
                UPDATE scale_requests SET routed_scaler = NULL
                WHERE state = 'waiting' AND routed_scaler = '' AND EXISTS (SELECT 1 FROM said)
                  AND NOT EXISTS (
                    SELECT 1 FROM before WHERE os IS NOT DISTINCT FROM :os
                      AND arch IS NOT DISTINCT FROM :arch
                      AND serves IS NOT DISTINCT FROM CAST(:serves AS text[]))
            )
            SELECT count(*) FROM said
            """,
            "serves",
        ),
        {
            "id": machine.machine_id,
            "kind": KIND,
            "me": driver,
            "boot_id": machine.boot_id,
            "os": machine.os,
            "arch": machine.arch,
            "cpu_millis": machine.cpu_millis,
            "memory_bytes": machine.memory_bytes,
            "serves": list(machine.serves or ()),
        },
    )
    return bool(rows.scalar_one())


def heartbeat(connection: Connection, *, driver: str, machine_ids: Collection[str]) -> None:
    """Say that these machines answer."""
    connection.execute(
        sql(
            """
            UPDATE machines SET last_heartbeat = clock_timestamp(), note = NULL,
                state = CASE WHEN state = 'unreachable' THEN 'up' ELSE state END
            WHERE backend_type = :kind AND driver = :me AND machine_id = ANY(:ids)
            """,
            "ids",
        ),
        {"kind": KIND, "me": driver, "ids": sorted(machine_ids)},
    )


def is_out_of_reach(connection: Connection, machine_id: str, *, driver: str, why: str) -> bool:
    """Say that its driver cannot reach a machine; whether that is news.

    It takes nothing new until it answers again; what lives there is left alone.
    """
    rows = connection.execute(
        sql("""
            UPDATE machines m SET note = :why,
                state = CASE WHEN m.state = 'up' THEN 'unreachable' ELSE m.state END
            FROM (SELECT state, note FROM machines
                  WHERE machine_id = :id AND backend_type = :kind) AS before
            WHERE machine_id = :id AND backend_type = :kind AND driver = :me
              AND (m.state = 'up' OR m.note IS DISTINCT FROM :why)
            RETURNING before.state = 'up' AS is_news
        """),
        {"kind": KIND, "id": machine_id, "me": driver, "why": why},
    )
    return bool(rows.scalar())


def drop_if_empty(connection: Connection, machine_id: str, *, driver: str) -> bool:
    """Forget a machine that nobody lists and on which no spawn stands; whether it went."""
    gone = connection.execute(
        sql("""
            DELETE FROM machines m
            WHERE machine_id = :id AND backend_type = :kind AND driver = :me
              AND NOT EXISTS (SELECT 1 FROM spawns s
                              WHERE s.machine_id = m.machine_id AND s.backend_type = :kind)
        """),
        {"kind": KIND, "id": machine_id, "me": driver},
    )
    return gone.rowcount == 1
