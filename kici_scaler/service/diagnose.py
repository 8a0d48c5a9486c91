"""The diagnosis of a running cluster, from rows alone."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from kici_scaler.domain.diagnosis import WINDOW_SECONDS, Health, Row, ScalerFacts, diagnose
from kici_scaler.domain.windows import Windows
from kici_scaler.service import revisions
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import due, failures, machines, scaler_states, settings, spawns
from kici_scaler.store.engine import snapshot

LONGEST_OVERDUE = 60.0
"""Due rows that nobody looked at for so long mean that no control worker sweeps."""


def diagnosis(runtime: Runtime) -> list[Row]:
    """Rows for scalers, the sweep, machines and quarantined spawns, in one snapshot.

    Raises:
        DatabaseUnreachable: nothing can be said.
    """
    with snapshot(runtime.engine) as connection:
        windows = settings.windows(connection)
        scalers = _scalers(connection)
        found = diagnose(scalers, failures.recent(connection, within_seconds=WINDOW_SECONDS))
        return [*found, *_housekeeping(connection, windows)]


def _scalers(connection: Connection) -> list[ScalerFacts]:
    counts: dict[str, int] = {}
    for (scaler, _), held in spawns.counts_by_state(connection).items():
        counts[scaler] = counts.get(scaler, 0) + held
    states = scaler_states.all_states(connection)
    cluster = revisions.active(connection).cluster
    return [
        ScalerFacts(
            name=scaler.name,
            backend_type=scaler.type.value,
            active_count=counts.get(scaler.name, 0),
            trouble=_trouble(states.get(scaler.name)),
        )
        for scaler in cluster.scalers
    ]


def _trouble(row: scaler_states.ScalerStateRow | None) -> str | None:
    if row is None:
        return None
    if row.standing is not scaler_states.ScalerStanding.ACTIVE:
        return f"{row.standing}{': ' + row.reason if row.reason else ''}"
    if row.backoff_seconds > 0:
        return f"backs off for another {row.backoff_seconds:.0f} s"
    return None


def _housekeeping(connection: Connection, windows: Windows) -> Iterator[Row]:
    overdue = due.oldest_overdue_seconds(connection)
    health = Health.FAIL if overdue > LONGEST_OVERDUE else Health.PASS
    yield Row(
        "sweep", health, f"the longest overdue row waits {overdue:.0f} s", {"overdue": overdue}
    )
    quarantined = sum(
        held
        for (_, state), held in spawns.counts_by_state(connection).items()
        if state == "quarantined"
    )
    yield Row(
        "quarantined",
        Health.FAIL if quarantined else Health.PASS,
        f"{quarantined} agents could not be confirmed gone",
        {"count": quarantined},
    )
    for row in machines.all_machines(connection, fresh_seconds=windows.machine_stale_seconds):
        up = row.is_fresh and row.state == "up"
        yield Row(
            f"machine:{row.machine_id}/{row.backend_type}",
            Health.PASS if up else Health.WARN,
            row.state if row.is_fresh else "its worker has not been heard of lately",
            {"state": row.state, "lastHeartbeat": row.last_heartbeat.isoformat()},
        )
