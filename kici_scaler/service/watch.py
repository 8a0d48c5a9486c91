"""Whether anybody watches over the agents, and what to say when nobody does.

Who could not observe does not judge, so without a living gateway (or without the sweep) every
deadline stands still. That must not last unnoticed: after `ALARM_SECONDS` it is alarmed.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog
from sqlalchemy import Connection

from kici_scaler.domain.windows import Windows
from kici_scaler.store import duties, gateways, observation
from kici_scaler.store.observation import LONGEST_GAP_SECONDS

log = structlog.get_logger(__name__)

ALARM_SECONDS = 60.0
"""A front that is restarted in good order is back well before."""
ALARM_AGAIN_SECONDS = 60.0
SWEEP = "sweep"


@dataclass(frozen=True, slots=True)
class Watch:
    """How the watch stands.

    Attributes:
        unwatched_seconds: since agents were last watched; 0 while they are.
        why: what is missing; empty while they are watched.
    """

    unwatched_seconds: float
    why: str

    @property
    def is_alarming(self) -> bool:
        """Whether it has lasted longer than any ordinary restart."""
        return self.unwatched_seconds > ALARM_SECONDS


def look(connection: Connection, windows: Windows) -> Watch:
    """How the watch stands at this moment."""
    seconds = observation.unwatched_seconds(connection)
    if seconds <= LONGEST_GAP_SECONDS:
        return Watch(0.0, "")
    swept = duties.seconds_since(connection, SWEEP)
    if swept is None or swept > LONGEST_GAP_SECONDS:
        return Watch(seconds, "no sweep runs: start a control worker and a beat")
    if not gateways.any_fresh(connection, fresh_seconds=windows.gateway_stale_seconds):
        return Watch(seconds, "no gateway lives: start one")
    return Watch(seconds, "the next sweep takes it up")


def alarm(connection: Connection, windows: Windows) -> None:
    """Called by a sweep that cannot watch: say so once a minute while that lasts."""
    found = look(connection, windows)
    if found.is_alarming and duties.claim_tick(
        connection, "unwatched", interval_seconds=ALARM_AGAIN_SECONDS
    ):
        log.error(
            "nobody watches over agents; every deadline stands still",
            seconds=int(found.unwatched_seconds),
            hint=found.why,
        )
