"""How long whoever lost its gateway may stay away, by how many have to come back with it.

Only reads, within the transaction of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sqlalchemy import Connection

from kici_scaler.domain.judgement import forgiving
from kici_scaler.domain.windows import Windows
from kici_scaler.store import observation


class Absentee(Protocol):
    """What is looked at of a due row."""

    @property
    def seconds_absent(self) -> float | None:
        """None while connected."""

    @property
    def adopter_dead(self) -> bool:
        """Whether the gateway it was last seen at is dead."""


def windows_for(connection: Connection, due: Iterable[Absentee], windows: Windows) -> Windows:
    """The windows to judge these by; agents are counted only where a gateway died on one."""
    if not any(each.adopter_dead and each.seconds_absent is not None for each in due):
        return windows
    return forgiving(windows, observation.registered(connection))
