"""A provision that was gone gives a sign of life: its teardown is asked for once more.

Crash table: part of the transaction of whoever saw it; after its COMMIT the deliveries are
due, and the next sweep reminds the workers of them.
"""

from __future__ import annotations

import structlog
from sqlalchemy import Connection

from kici_scaler.store import settings, teardowns

log = structlog.get_logger(__name__)


def on_sign_of_life(connection: Connection, agent_id: str) -> None:
    """Owe scale-downs again, if this was a provision that counts as gone."""
    interval = settings.windows(connection).reattempt_interval_seconds
    if teardowns.rearm(connection, agent_id, interval=interval, hint_after=0.0):
        log.error(
            "a provision that was torn down lives",
            agent_id=agent_id,
            hint="it is asked for again; look at what tears machines down",
        )
