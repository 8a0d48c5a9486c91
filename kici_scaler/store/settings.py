"""Live settings: read per use, cluster-wide or of one organisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from kici_scaler.domain.windows import DEFAULTS, LONGEST_SECONDS, Windows, spawn_timeout
from kici_scaler.store.bulk import sql
from kici_scaler.store.failovers import HELD

CLUSTER = ""


@dataclass(frozen=True, slots=True)
class Live:
    """Every setting that decisions need, and the moment they were read, by the database's clock.

    `spawn_timeouts` are those of organisations that have their own, in seconds; `draining` turns
    new demand away while running agents finish; `held_back` is after a failover of the database,
    until a person lets it go on.
    """

    windows: Windows
    spawn_timeouts: Mapping[str, float]
    draining: bool
    now: datetime
    held_back: bool = False


LIVE = f"""
    SELECT clock_timestamp() AS now, {HELD} AS held_back,
           jsonb_object_agg(key, value) FILTER (WHERE scope = '') AS of_cluster,
           jsonb_object_agg(scope, value)
               FILTER (WHERE scope <> '' AND key = 'spawn_timeout_seconds') AS timeouts
    FROM settings
"""
"""One row, as `parsed` takes it."""


def live(connection: Connection) -> Live:
    """All of it in one read."""
    return parsed(connection.execute(sql(LIVE)).one()._asdict())


def parsed(values: Mapping[str, Any]) -> Live:
    """Everything from that row."""
    of_cluster = values["of_cluster"] or {}
    return Live(
        windows=Windows.of(of_cluster),
        spawn_timeouts=_within_bounds(values["timeouts"] or {}),
        draining=of_cluster.get("draining") is True,
        now=values["now"],
        held_back=values["held_back"],
    )


def _within_bounds(stored: Mapping[str, object]) -> dict[str, float]:
    found = {scope: spawn_timeout(value) for scope, value in stored.items()}
    return {scope: seconds for scope, seconds in found.items() if seconds is not None}


OF_CLUSTER = "(SELECT jsonb_object_agg(key, value) FROM settings WHERE scope = '')"
"""What `Windows.of` takes, for a statement that reads more than that; null for nothing stored."""


def window(name: str) -> str:
    """The SQL of one window in seconds, for a statement that needs no other.

    As `Windows.of` has it: what is no sensible number counts as unset.
    """
    return f"""coalesce((
        SELECT CAST(stored.n AS double precision) FROM (
            SELECT CASE jsonb_typeof(value) WHEN 'number' THEN CAST(value AS numeric) END AS n
            FROM settings WHERE scope = '' AND key = '{name}') AS stored
        WHERE stored.n BETWEEN 0 AND {LONGEST_SECONDS:.0f}), {getattr(DEFAULTS, name):.1f})"""


def windows(connection: Connection) -> Windows:
    """The cluster's windows: stored values over the defaults."""
    rows = connection.execute(
        sql("SELECT key, value FROM settings WHERE scope = :scope"), {"scope": CLUSTER}
    )
    return Windows.of({row.key: row.value for row in rows})


def is_draining(connection: Connection) -> bool:
    """Whether new demand is turned away while running agents finish."""
    row = connection.execute(
        sql("SELECT value FROM settings WHERE scope = '' AND key = 'draining'")
    ).scalar_one_or_none()
    return row is True


def lock(connection: Connection) -> None:
    """Let nobody else change settings until this transaction ends."""
    connection.execute(sql("SELECT pg_advisory_xact_lock(hashtextextended('kici:settings', 0))"))


def put(
    connection: Connection, key: str, value: object, *, changed_by: str, scope: str = CLUSTER
) -> None:
    """Store a value over the default."""
    connection.execute(
        sql("""
            INSERT INTO settings (scope, key, value, changed_by)
            VALUES (:scope, :key, CAST(:value AS jsonb), :by)
            ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value,
                changed_at = clock_timestamp(), changed_by = excluded.changed_by
        """),
        {"scope": scope, "key": key, "value": json.dumps(value), "by": changed_by},
    )


def reset(connection: Connection, key: str, *, scope: str = CLUSTER) -> bool:
    """Go back to the default; False when nothing was stored."""
    gone = connection.execute(
        sql("DELETE FROM settings WHERE scope = :scope AND key = :key"),
        {"scope": scope, "key": key},
    )
    return gone.rowcount == 1


@dataclass(frozen=True, slots=True)
class StoredSetting:
    """A value over the default, and who put it there."""

    key: str
    value: float
    changed_by: str
    changed_at: datetime


def stored(connection: Connection, scope: str) -> list[StoredSetting]:
    """The numbers stored for a scope."""
    rows = connection.execute(
        sql("""
            SELECT key, value, changed_by, changed_at FROM settings
            WHERE scope = :scope AND jsonb_typeof(value) = 'number'
        """),
        {"scope": scope},
    )
    return [
        StoredSetting(row.key, float(row.value), row.changed_by, row.changed_at) for row in rows
    ]
