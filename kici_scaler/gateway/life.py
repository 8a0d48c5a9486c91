"""A gateway's own life: its incarnation, its heartbeat, who left, its orderly end.

Crash table (`kill -9` at any point): the incarnation stops beating and is declared dead;
its agents become unseen since its last heartbeat and return through any gateway.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final

import structlog

from kici_scaler.agent.protocol import CloseCode
from kici_scaler.gateway.core import TRANSIENT, Gateway
from kici_scaler.gateway.errands import Errands
from kici_scaler.gateway.session import Session
from kici_scaler.service import gateway_life, register

log = structlog.get_logger(__name__)

BEAT_SECONDS: Final = 5.0
"""A third of the time after which a silent gateway is declared dead."""
FRESH_SECONDS: Final = 12.0
"""Two missed heartbeats and some; after that this gateway does not call itself ready."""
DEPARTURE_SECONDS: Final = 0.2
"""Sockets that close within this time are recorded in one transaction."""
CLOSES_PER_SECOND: Final = 2_000
LONGEST_CLOSING_SECONDS: Final = 4.0
SETTLE_SECONDS: Final = 3.0
"""For answers that are on their way when the gateway stops."""


class Life:
    """Keeps one gateway process going, from its first heartbeat to its last word."""

    def __init__(self, gateway: Gateway, wakeup_url: str) -> None:
        self._gateway = gateway
        self._errands = Errands(gateway, wakeup_url)
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: asyncio.Task[None] | None = None
        self._must_reassert = False

    @property
    def is_ready(self) -> bool:
        """Whether the database lately confirmed that this incarnation is alive."""
        gateway = self._gateway
        age = asyncio.get_running_loop().time() - gateway.beaten_at
        return bool(gateway.incarnation) and age < FRESH_SECONDS and not gateway.stopping.is_set()

    async def begin(self) -> None:
        """Open the incarnation and start what runs beside the connections.

        Raises:
            DatabaseUnreachable: nothing was begun.
        """
        self._gateway.lines.start()
        await self._incarnate()
        create = asyncio.get_running_loop().create_task
        self._tasks = [
            create(self._beat()),
            create(self._errands.run()),
            create(self._record_departures()),
            create(self._gateway.feed.run()),
        ]

    async def end(self) -> None:
        """Finish what is on its way, send the agents elsewhere, close the incarnation; once."""
        gateway = self._gateway
        if gateway.stopping.is_set():
            return
        gateway.stopping.set()
        sessions = gateway.sessions.all()
        for task in [*self._tasks, *([self._listening] if self._listening else [])]:
            task.cancel()
        await self._settle(sessions)
        await self._send_away(sessions)
        await gateway.feed.flush()
        try:
            await gateway.threads.life(
                gateway_life.close_incarnation, gateway.runtime, gateway.incarnation
            )
        except TRANSIENT as error:
            log.warning("incarnation not closed; it will be declared dead", error=str(error))
        gateway.lines.stop()
        log.info("gateway stopped", incarnation=gateway.incarnation, agents=len(sessions))

    async def _incarnate(self) -> None:
        gateway = self._gateway
        gateway.incarnation = await gateway.threads.life(
            gateway_life.open_incarnation, gateway.runtime
        )
        gateway.beaten_at = asyncio.get_running_loop().time()
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.get_running_loop().create_task(self._errands.listen())
        log.info("gateway incarnation opened", incarnation=gateway.incarnation)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                await self._beat_once()
            except TRANSIENT as error:
                log.warning("heartbeat not stored", error=str(error))
            except Exception:  # The last line of its task: without it the gateway is dead.
                log.exception("heartbeat failed unexpectedly")

    async def _beat_once(self) -> None:
        gateway = self._gateway
        loop = asyncio.get_running_loop()
        if gateway.incarnation:
            started = loop.time()
            alive = await gateway.threads.life(
                gateway_life.beat, gateway.runtime, gateway.incarnation
            )
            if alive:
                gateway.beaten_at = started
                await self._reassert()
                return
            log.warning("declared dead; starting over", incarnation=gateway.incarnation)
            gateway.incarnation = ""
        await self._incarnate()
        self._must_reassert = True
        await self._reassert()

    async def _reassert(self) -> None:
        """Put the open connections under the new incarnation; close those it did not get."""
        if not self._must_reassert:
            return
        gateway = self._gateway
        sessions = gateway.sessions.all()
        kept = await gateway.threads.life(
            register.reassert,
            gateway.runtime,
            gateway.incarnation,
            [(each.agent_id, each.connection) for each in sessions],
        )
        self._must_reassert = False
        # Who left meanwhile may have been recorded as gone before it was taken over.
        gateway.departed += [
            (each.agent_id, each.connection)
            for each in sessions
            if each.gone and not each.superseded and each.agent_id in kept
        ]
        lost = [each for each in sessions if each.agent_id not in kept and not each.gone]
        log.info("connections re-asserted", kept=len(kept), closed=len(lost))
        for session in lost:
            reason = "this gateway was taken for dead; come back"
            gateway.spawn(session.link.close(CloseCode.REFUSED_FOR_NOW, reason))

    async def _record_departures(self) -> None:
        while True:
            await asyncio.sleep(DEPARTURE_SECONDS)
            try:
                await self._flush_departures()
            except Exception:  # The last line of its task: nobody else records who left.
                log.exception("departures failed unexpectedly")

    async def _flush_departures(self) -> None:
        """Start the absence clocks of those who left; kept for the next time on an outage."""
        gateway = self._gateway
        if not gateway.departed or not gateway.incarnation:
            return
        leaving, gateway.departed = gateway.departed, []
        try:
            await gateway.threads.life(
                register.disconnected_many, gateway.runtime, gateway.incarnation, leaving
            )
        except TRANSIENT as error:
            log.warning("departures not stored yet", agents=len(leaving), error=str(error))
            gateway.departed = leaving + gateway.departed

    async def _settle(self, sessions: list[Session]) -> None:
        """Let steps that were begun end, for a bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                for session in sessions:
                    await session.settled()

    async def _send_away(self, sessions: list[Session]) -> None:
        """Close every socket, spread out so that the agents do not return in one moment."""
        window = min(LONGEST_CLOSING_SECONDS, len(sessions) / CLOSES_PER_SECOND)

        async def close(session: Session) -> None:
            await asyncio.sleep(random.uniform(0, window))
            await session.link.close(
                CloseCode.GOING_AWAY, "this gateway stops; come back", notice=False
            )

        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_CLOSING_SECONDS + 1):
                await asyncio.gather(*(close(session) for session in sessions))
