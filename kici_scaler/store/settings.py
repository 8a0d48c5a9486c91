"""Live settings: read per use, cluster-wide or of one organisation."""

from __future__ import annotations

from sqlalchemy import Connection

from kici_scaler.domain.windows import Windows
from kici_scaler.store.bulk import sql

CLUSTER = ""


def windows(connection: Connection) -> Windows:
    """The cluster's windows: stored values over the defaults."""
    rows = connection.execute(
        sql("SELECT key, value FROM settings WHERE scope = :scope"), {"scope": CLUSTER}
    )
    return Windows.of({row.key: row.value for row in rows})


def spawn_timeouts(connection: Connection) -> dict[str, float]:
    """Spawn time-outs in seconds of the organisations that have their own."""
    rows = connection.execute(
        sql("SELECT scope, value FROM settings WHERE key = 'spawn_timeout_seconds' AND scope <> ''")
    )
    return {row.scope: float(row.value) for row in rows}


def is_draining(connection: Connection) -> bool:
    """Whether new demand is turned away while running agents finish."""
    row = connection.execute(
        sql("SELECT value FROM settings WHERE scope = '' AND key = 'draining'")
    ).scalar_one_or_none()
    return row is True
