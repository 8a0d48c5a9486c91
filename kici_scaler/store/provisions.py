"""The spawn row of a provision: its own ways through states that other backends reach by
making compute."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql


def hand_over(connection: Connection, agent_ids: Sequence[str], *, holder: str) -> None:
    """Give the start leases back: from now on the deliveries carry these spawns."""
    connection.execute(
        sql(
            """
            UPDATE spawns SET lease_holder = NULL, lease_expires_at = NULL,
                retry_at = deadline_at + interval '1 day', due_at = deadline_at, due_count = 0
            WHERE agent_id = ANY(:ids) AND state = 'spawning' AND lease_holder = :holder
            """,
            "ids",
        ),
        {"ids": list(agent_ids), "holder": holder},
    )


def boot(
    connection: Connection, agent_id: str, *, since: datetime, boot_floor_seconds: float
) -> float | None:
    """A delivery may have reached somebody then: the time to register runs from that moment.

    Only from `spawning`; the seconds left, or None when it was in another state already.
    """
    left = connection.execute(
        sql("""
            UPDATE spawns SET state = 'booting', booting_at = clock_timestamp(), due_count = 0,
                deadline_at = CAST(:since AS timestamptz)
                    + make_interval(secs => greatest(spawn_timeout_seconds, :floor)),
                due_at = CAST(:since AS timestamptz)
                    + make_interval(secs => greatest(spawn_timeout_seconds, :floor))
            WHERE agent_id = :id AND state = 'spawning'
            RETURNING extract(epoch FROM deadline_at - clock_timestamp())
        """),
        {"id": agent_id, "since": since, "floor": boot_floor_seconds},
    ).scalar_one_or_none()
    return None if left is None else float(left)


def without_target(connection: Connection, agent_ids: Sequence[str]) -> dict[str, str]:
    """The scalers of those provisions that no target is recorded on, by agent id."""
    rows = connection.execute(
        sql(
            "SELECT agent_id, scaler FROM spawns WHERE agent_id = ANY(:ids) AND targets = '{}'",
            "ids",
        ),
        {"ids": list(agent_ids)},
    )
    return {row.agent_id: row.scaler for row in rows}


def record_targets(connection: Connection, agent_id: str, targets: Sequence[str]) -> None:
    """Write down who is asked to take a provision away."""
    connection.execute(
        sql("UPDATE spawns SET targets = :targets WHERE agent_id = :id", "targets"),
        {"id": agent_id, "targets": list(targets)},
    )
