"""After a failover of the database: notice it, and go on once the machines agree with the rows.

Crash table: within the sweep's transaction; before its COMMIT nothing happened, the next does it.
"""

from __future__ import annotations

import structlog
from sqlalchemy import Connection

from kici_scaler.domain.scalers import BackendType
from kici_scaler.service import revisions
from kici_scaler.store import audit, failovers, spawns

log = structlog.get_logger(__name__)

BY_ITSELF = "the machines' inventories"
"""Who lifts it, where no person does."""


def look(connection: Connection) -> bool:
    """Note which server this is; True when things have just been let go on."""
    noted = failovers.note(connection)
    if noted.changed:
        log.error(
            "the database failed over; admission and reclaim are held back",
            hint="they go on once every machine agrees, or by `kici-scaler resume`",
        )
    if not noted.held or noted.changed or not _agree(connection):
        return False
    failovers.lift(connection)
    audit.record(connection, BY_ITSELF, "resume", "cluster", {})
    log.warning("every machine agrees with the rows; admission and reclaim go on")
    return True


def why_held(connection: Connection) -> list[str]:
    """What keeps things held back, a sentence each."""
    found = [
        f"machine `{each.machine_id}` ({each.backend_type}) "
        + (
            "was not listed since"
            if each.strangers is None
            else f"holds {each.strangers} agents that no row stands for"
        )
        for each in failovers.disagreements(connection)
    ]
    if _has_provisions(connection):
        found.append("event scalers have no machine that could be listed")
    return found


def _agree(connection: Connection) -> bool:
    return not failovers.disagreements(connection) and not _has_provisions(connection)


def _has_provisions(connection: Connection) -> bool:
    """Whether compute may exist that no worker can list."""
    configured = revisions.active(connection).cluster.scalers
    return any(each.type is BackendType.EVENT for each in configured) or spawns.any_of_type(
        connection, BackendType.EVENT.value
    )
