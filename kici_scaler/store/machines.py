"""Machines: where compute lives, as their backend workers announce them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from kici_scaler.store.bulk import moment, sql


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a backend worker says of the machine it drives."""

    machine_id: str
    backend_type: str
    boot_id: str
    os: str | None
    arch: str | None
    cpu_millis: int
    memory_bytes: int
    serves: tuple[str, ...] | None = None
    """Scaler names this worker serves; None is every scaler of its kind."""


@dataclass(frozen=True, slots=True)
class MachineRow:
    """A machine and whether its worker was heard of lately."""

    machine_id: str
    backend_type: str
    boot_id: str
    state: str
    os: str | None
    arch: str | None
    cpu_millis: int
    memory_bytes: int
    serves: tuple[str, ...] | None
    held_back: bool
    """Its `not before` is still ahead: another user of its pool holds the room."""
    is_fresh: bool
    last_heartbeat: datetime
    degraded: Mapping[str, str] = field(default_factory=dict)
    """Scalers that cannot run there at the moment, and why."""
    address: str | None = None
    """Where a machine of a fleet is; None for a worker's own host."""
    note: str | None = None
    """Why its worker cannot reach it."""

    @property
    def is_remote(self) -> bool:
        """Whether it is a machine of a fleet, and not a worker's own host."""
        return self.address is not None


def announce(connection: Connection, machine: Announcement) -> None:
    """Insert or refresh a worker's own host; an announcement brings an unreachable one back.

    A machine of another kind may serve what nothing served so far: those requests are
    undecided again.
    """
    connection.execute(
        sql(
            """
            WITH before AS (
                SELECT os, arch, serves FROM machines
                WHERE machine_id = :machine_id AND backend_type = :backend_type
            ), said AS (
                INSERT INTO machines AS m
                    (machine_id, backend_type, boot_id, os, arch, cpu_millis, memory_bytes, serves)
                VALUES (:machine_id, :backend_type, :boot_id, :os, :arch, :cpu_millis,
                        :memory_bytes, :serves)
                ON CONFLICT (machine_id, backend_type) DO UPDATE SET
                    boot_id = excluded.boot_id, os = excluded.os, arch = excluded.arch,
                    cpu_millis = excluded.cpu_millis, memory_bytes = excluded.memory_bytes,
                    serves = excluded.serves, last_heartbeat = clock_timestamp(),
                    announced_at = clock_timestamp(), note = NULL, address = NULL, target = NULL,
                    driver = NULL, driver_until = NULL,
                    state = CASE WHEN m.state = 'unreachable' THEN 'up' ELSE m.state END
            )
            UPDATE scale_requests SET routed_scaler = NULL
            WHERE state = 'waiting' AND routed_scaler = '' AND NOT EXISTS (
                SELECT 1 FROM before WHERE os IS NOT DISTINCT FROM :os
                  AND arch IS NOT DISTINCT FROM :arch
                  AND serves IS NOT DISTINCT FROM CAST(:serves AS text[]))
            """,
            "serves",
        ),
        {
            "machine_id": machine.machine_id,
            "backend_type": machine.backend_type,
            "boot_id": machine.boot_id,
            "os": machine.os,
            "arch": machine.arch,
            "cpu_millis": machine.cpu_millis,
            "memory_bytes": machine.memory_bytes,
            "serves": None if machine.serves is None else list(machine.serves),
        },
    )


def heartbeat(connection: Connection, machine_id: str, backend_type: str) -> bool:
    """Say that this machine's worker lives; False when the row is gone (announce again)."""
    result = connection.execute(
        sql("""
            UPDATE machines SET last_heartbeat = clock_timestamp(), note = NULL,
                state = CASE WHEN state = 'unreachable' THEN 'up' ELSE state END
            WHERE machine_id = :id AND backend_type = :backend_type
        """),
        {"id": machine_id, "backend_type": backend_type},
    )
    return result.rowcount == 1


SELECT = """
    SELECT machine_id, backend_type, boot_id, state, os, arch, cpu_millis, memory_bytes, serves,
           coalesce(not_before > clock_timestamp(), false) AS held_back,
           extract(epoch FROM clock_timestamp() - last_heartbeat) AS silent_seconds,
           last_heartbeat, address, note,
           coalesce((SELECT jsonb_object_agg(d.scaler, d.reason) FROM machine_scalers d
                     WHERE d.machine_id = m.machine_id
                       AND d.backend_type = m.backend_type), '{}') AS degraded
    FROM machines m ORDER BY machine_id, backend_type
"""
"""Every machine, as `parsed` takes them."""


def all_machines(connection: Connection, *, fresh_seconds: float) -> list[MachineRow]:
    """Every machine; fresh ones were heard of within `fresh_seconds`."""
    rows = connection.execute(sql(SELECT))
    return [parsed(row._asdict(), fresh_seconds=fresh_seconds) for row in rows]


def parsed(values: Mapping[str, Any], *, fresh_seconds: float) -> MachineRow:
    """A machine from a row or from JSON."""
    others = dict(values)
    silent, serves = float(others.pop("silent_seconds")), others.pop("serves")
    others["last_heartbeat"] = moment(others["last_heartbeat"])
    return MachineRow(
        **others,
        is_fresh=silent < fresh_seconds,
        serves=None if serves is None else tuple(serves),
    )


def _fell_silent(silent: str) -> str:
    """Whether its worker was not heard of for so many seconds, themselves an expression."""
    return (
        "state = 'up' AND last_heartbeat"
        f" < (SELECT clock_timestamp() - make_interval(secs => {silent}))"
    )


def any_fell_silent(silent: str) -> str:
    """Whether `mark_unreachable` would mark any, as an expression."""
    return f"EXISTS (SELECT 1 FROM machines WHERE {_fell_silent(silent)})"


def mark_unreachable(connection: Connection, *, silent_seconds: float) -> Sequence[str]:
    """Mark machines whose worker fell silent; they take nothing new until it returns."""
    rows = connection.execute(
        sql(f"""
            UPDATE machines SET state = 'unreachable' WHERE {_fell_silent(":silent")}
            RETURNING machine_id
        """),
        {"silent": silent_seconds},
    )
    return rows.scalars().all()


def set_draining(connection: Connection, machine_id: str, draining: bool) -> bool:
    """Take a machine out of placement, or back into it; False when it is unknown."""
    result = connection.execute(
        sql("""
            UPDATE machines SET state = CASE
                WHEN :draining THEN 'draining'
                WHEN state = 'draining' THEN 'up'
                ELSE state END
            WHERE machine_id = :id
        """),
        {"id": machine_id, "draining": draining},
    )
    return result.rowcount > 0


def hold_back(
    connection: Connection,
    machine_id: str,
    backend_type: str,
    *,
    seconds: float,
    foreign_use: Mapping[str, object],
) -> None:
    """Keep pool users off a machine for a while: another installation holds the room."""
    connection.execute(
        sql("""
            UPDATE machines SET
                not_before = clock_timestamp() + make_interval(secs => :seconds),
                foreign_use = CAST(:use AS jsonb)
            WHERE machine_id = :id AND backend_type = :backend_type
        """),
        {
            "id": machine_id,
            "backend_type": backend_type,
            "seconds": seconds,
            "use": json.dumps(dict(foreign_use)),
        },
    )
