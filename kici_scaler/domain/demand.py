"""Requests of one kind in a decision, and what was found out about them so far."""

from __future__ import annotations

from dataclasses import dataclass

from kici_scaler.domain.prespawned import Supply
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.routing import Route, Wanted
from kici_scaler.domain.static_agents import StaticSupply
from kici_scaler.domain.usage import Rooms


@dataclass(slots=True, eq=False)
class Demand:
    """Requests that differ in nothing a decision looks at share one of these."""

    first: Waiting
    """The most urgent of them."""
    route: Route | None = None
    scaler: str = ""
    rooms: Rooms | None = None
    """None until somebody asks for room (whoever gets a ready agent never does), and when these
    requests are refused whatever room there is."""
    code: WaitCode = WaitCode.AT_CAPACITY
    reason: str = ""
    """Why these requests are refused, once one of them was."""
    supply: Supply | None = None
    static: StaticSupply | None = None
    refused: int = 0
    aged: int = 0
    """How many of the refused have waited past the ageing bound."""

    @property
    def wanted(self) -> Wanted:
        """What each of them asks for."""
        return Wanted.by(self.first)

    def shut(self, code: WaitCode, reason: str) -> None:
        """Refuse them whatever room there is."""
        self.code, self.reason, self.rooms = code, reason, None
