"""What gateways owe their agents: offers, cancellations, farewells, as the rows say.

A wake-up makes it quick, a poll of the owed rows makes it certain. One query serves all
agents woken at the same time.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from kici_scaler.agent.protocol import CloseCode, JobCancel, ProtocolViolation, Shutdown
from kici_scaler.broker import wakeups
from kici_scaler.broker.log_stream import open_client
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway.core import TRANSIENT, Gateway
from kici_scaler.gateway.jobs import JobDesk
from kici_scaler.gateway.session import Session
from kici_scaler.service import gateway_life
from kici_scaler.store.agents import Errand

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 2.0
OFFER_AGAIN_SECONDS: Final = 10.0
FAREWELL_SECONDS: Final = 5.0
"""How long an agent that was told to go, or is done, may take to close by itself."""


class Errands:
    """Runs them for one gateway."""

    def __init__(self, gateway: Gateway, wakeup_url: str) -> None:
        self._gateway = gateway
        self._wakeup_url = wakeup_url
        self._woken: set[str] = set()
        self._wake = asyncio.Event()
        self._look_at_all = False
        gateway.look_after = self.woken

    async def listen(self) -> None:
        """Collect wake-ups of the current incarnation; until cancelled."""
        client = open_client(self._wakeup_url)
        try:
            async for wakeup in wakeups.listen(client, self._gateway.incarnation):
                if wakeup is None:
                    self.woken(None)
                elif wakeup.job_id is None:
                    self.woken(wakeup.agent_id)
                else:
                    self._asked_to_offer(wakeup.agent_id, wakeup.job_id, wakeup.run_id)
        finally:
            await client.aclose()

    def woken(self, agent_id: str | None) -> None:
        """Look after this agent, or after all when None, soon."""
        if agent_id is None:
            self._look_at_all = True
        else:
            session = self._gateway.sessions.get(agent_id)
            if session is None or session.finishing:
                return
            self._woken.add(agent_id)
        self._wake.set()

    def _asked_to_offer(self, agent_id: str, job_id: str, run_id: str) -> None:
        """Offer at once what an agent that waits was given; of any other the rows tell more."""
        session = self._gateway.sessions.get(agent_id)
        if session is None or not session.waits_for_a_job:
            self.woken(agent_id)
            return
        try:
            self._offer(session, job_id, run_id)
        except ProtocolViolation as problem:
            self._end(session, problem)

    async def run(self) -> None:
        """Look after agents as they are woken, and after all every `POLL_SECONDS`."""
        loop = asyncio.get_running_loop()
        polled_at = loop.time()
        while True:
            pause = polled_at + POLL_SECONDS - loop.time()
            try:
                async with asyncio.timeout(max(0.0, pause)):
                    await self._wake.wait()
            except TimeoutError:
                self._look_at_all = True
            self._wake.clear()
            agents, everyone = self._woken, self._look_at_all
            self._woken, self._look_at_all = set(), False
            if everyone:
                polled_at = loop.time()
            if len(self._gateway.sessions) and (everyone or agents):
                try:
                    await self._look(None if everyone else sorted(agents))
                except Exception:  # The last line of its task: agents wait for what it brings.
                    log.exception("errands failed; the next poll runs them")

    async def _look(self, agent_ids: list[str] | None) -> None:
        gateway = self._gateway
        try:
            owed = await gateway.threads.life(
                gateway_life.errands, gateway.runtime, gateway.incarnation, agent_ids
            )
        except TRANSIENT as error:
            log.warning("errands not read; the next poll does", error=str(error))
            return
        for errand in owed:
            session = gateway.sessions.get(errand.agent_id)
            if session is None or session.connection != errand.connection_number:
                continue
            try:
                self._run(session, errand)
            except ProtocolViolation as problem:
                self._end(session, problem)

    def _end(self, session: Session, problem: ProtocolViolation) -> None:
        """Its own fault, and nobody else's loss."""
        closing = session.link.close(CloseCode.PROTOCOL_VIOLATION, str(problem))
        self._gateway.spawn(closing)

    def _run(self, session: Session, errand: Errand) -> None:
        now = asyncio.get_running_loop().time()
        if errand.state is SpawnState.IDLE:
            if errand.job_id is not None and session.ready:
                self._offer(session, errand.job_id, errand.run_id or "")
        elif errand.state is SpawnState.BUSY:
            self._cancel(session, errand)
        else:
            self._send_away(session, errand, now)

    def _offer(self, session: Session, job_id: str, run_id: str) -> None:
        now = asyncio.get_running_loop().time()
        if session.offered_job == job_id and now < session.offered_at + OFFER_AGAIN_SECONDS:
            return
        desk = JobDesk(self._gateway, session)
        session.do(f"offer {job_id}", lambda: desk.offer(job_id, run_id))

    def _send_away(self, session: Session, errand: Errand, now: float) -> None:
        """Its compute goes. One that is done leaves by itself, one that is not is told so."""
        if session.finishing and not session.over_at:
            return
        begun = session.over_at or session.told_at
        if not begun:
            session.told_at = now
            reason = errand.destroy_reason or "shutdown"
            session.do("tell to go", lambda: session.link.say(Shutdown(reason)))
        elif now >= begun + FAREWELL_SECONDS:
            reason = "the machine of this agent is being torn down"
            self._gateway.spawn(session.link.close(CloseCode.TOLD_TO_GO, reason))

    def _cancel(self, session: Session, errand: Errand) -> None:
        job_id, reason = errand.job_id, errand.cancel_reason
        if job_id is None or reason is None or job_id == session.done_job:
            return
        if session.cancelled:
            if errand.overdue:
                self._break_with(session, job_id)
            return
        session.cancelled = True
        session.do(f"cancel {job_id}", lambda: session.link.say(JobCancel(job_id, reason)))

    def _break_with(self, session: Session, job_id: str) -> None:
        """An agent that no scaler made goes on with a job that is not its own.

        Its machine is not the cluster's to take away. When it comes back it says what it holds,
        and is offered nothing until that is another.
        """
        log.warning("agent does not stop a job", agent=session.agent_id, job=job_id)
        reason = f"job {job_id[:200]} was to be stopped; come back"
        self._gateway.spawn(session.link.close(CloseCode.REFUSED_FOR_NOW, reason))
