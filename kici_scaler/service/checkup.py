"""What the database tells about an installation: its version, clock, schema, lock and duties.

Nothing is written. Each check is a finding of its own, so one that fails hides no other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from kici_scaler.domain.diagnosis import Health, Row
from kici_scaler.service import revisions, sweep
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import due, duties, machines, section, settings
from kici_scaler.store.bulk import sql
from kici_scaler.store.engine import Contended, transaction

OLDEST_POSTGRES: Final = 150_000
"""As `server_version_num` has it: the oldest version that tests run against."""
MOST_SKEW_SECONDS: Final = 5.0
"""Deadlines are the database's, so a skew only confuses who compares logs, and certificates."""
SLOW_MILLIS: Final = 50.0
"""A decision is a handful of statements; at this distance it takes a quarter of a second."""
LOCK_SECONDS: Final = 2.0
SWEEP_SECONDS: Final = 30.0
OVERDUE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """A machine's workers, by what their queues are named after; None for `event`."""

    backend_type: str
    machine_id: str | None


def database(runtime: Runtime) -> Iterator[Row]:
    """The server itself.

    Raises:
        DatabaseUnreachable: it cannot be asked.
    """
    with transaction(runtime.engine) as connection:
        begun, at = time.monotonic(), time.time()
        row = connection.execute(
            sql("""
                SELECT extract(epoch FROM clock_timestamp()) AS now,
                       current_setting('server_version') AS version,
                       current_setting('server_version_num')::int AS number,
                       pg_is_in_recovery() AS standby
            """)
        ).one()
        took = time.monotonic() - begun
    old, standby = row.number < OLDEST_POSTGRES, bool(row.standby)
    remark = "; it is a standby and takes no writes" if standby else ""
    yield Row(
        "postgres", Health.FAIL if old or standby else Health.PASS,
        f"version {row.version}{'; 15 or newer is needed' if old else ''}{remark}",
        {"version": row.version},
    )  # fmt: skip
    slow = took * 1000 > SLOW_MILLIS
    yield Row(
        "postgres-distance", Health.WARN if slow else Health.PASS,
        f"a statement takes {took * 1000:.1f} ms", {"millis": round(took * 1000, 1)},
    )  # fmt: skip
    yield skew("clock", float(row.now) - at, took, "the database's")


def skew(name: str, seconds: float, took: float, whose: str) -> Row:
    """How far a clock is from this machine's, the way there and back taken off."""
    away = max(0.0, abs(seconds) - took)
    word = "behind" if seconds > 0 else "ahead of"
    message = f"this machine's clock is {away:.1f} s {word} {whose}"
    return Row(
        name, Health.WARN if away > MOST_SKEW_SECONDS else Health.PASS,
        message if away >= 0.1 else f"this machine's clock agrees with {whose}",
        {"seconds": round(seconds, 3)},
    )  # fmt: skip


def work(runtime: Runtime) -> Iterator[Row]:
    """What goes on in a database that has its schema: lock, sweep, machines, configuration.

    Raises:
        DatabaseUnreachable: it cannot be asked.
    """
    yield _lock(runtime)
    with transaction(runtime.engine) as connection:
        yield _sweep(connection)
        yield _configuration(connection)
        yield _machines(connection)


def places(runtime: Runtime) -> list[Place]:
    """Where workers should consume: machines whose workers announced themselves, and `event`.

    A machine that is unreachable by now is left out; its finding is another.
    """
    with transaction(runtime.engine) as connection:
        live = settings.windows(connection)
        rows = machines.all_machines(connection, fresh_seconds=live.machine_stale_seconds)
        scalers = revisions.active(connection).cluster.scalers
    found = [Place(row.backend_type, row.machine_id) for row in rows if row.is_fresh]
    event = any(not scaler.type.is_local for scaler in scalers)
    return [*found, Place("event", None)] if event else found


def _lock(runtime: Runtime) -> Row:
    begun = time.monotonic()
    try:
        with transaction(runtime.engine) as connection:
            section.enter(connection, bound_seconds=LOCK_SECONDS)
    except Contended:
        return Row(
            "admission-lock", Health.FAIL,
            f"not got within {LOCK_SECONDS:g} s: somebody holds it; see pg_locks", {},
        )  # fmt: skip
    took = (time.monotonic() - begun) * 1000
    return Row("admission-lock", Health.PASS, f"got within {took:.0f} ms", {"millis": round(took)})


def _sweep(connection: Connection) -> Row:
    age = duties.seconds_since(connection, sweep.DUTY)
    overdue = due.oldest_overdue_seconds(connection)
    details = {"secondsSince": age, "overdueSeconds": overdue}
    if age is None:
        return Row("sweep", Health.FAIL, "never ticked: start a control worker and a beat", details)
    bad = age > SWEEP_SECONDS or overdue > OVERDUE_SECONDS
    return Row(
        "sweep", Health.FAIL if bad else Health.PASS,
        f"ticked {age:.0f} s ago; the longest overdue row waits {overdue:.0f} s", details,
    )  # fmt: skip


def _configuration(connection: Connection) -> Row:
    revision = revisions.active(connection)
    count = len(revision.cluster.scalers)
    return Row(
        "configuration", Health.PASS if count else Health.WARN,
        f"revision {revision.id} with {count} scalers" if count
        else "no scaler is configured: `kici-scaler reload FILE`",
        {"revision": revision.id, "scalers": count},
    )  # fmt: skip


def _machines(connection: Connection) -> Row:
    live = settings.windows(connection)
    rows = machines.all_machines(connection, fresh_seconds=live.machine_stale_seconds)
    silent = sorted(row.machine_id for row in rows if not row.is_fresh)
    return Row(
        "machines", Health.WARN if silent else Health.PASS,
        f"{len(rows) - len(silent)} of {len(rows)} were heard of lately"
        + (f"; silent: {', '.join(silent[:5])}" if silent else ""),
        {"known": len(rows), "silent": silent},
    )  # fmt: skip
