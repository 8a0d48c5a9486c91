"""Agents that are connected and have nothing to do, many of them in one process.

The connection, the pauses between two and what ends an agent are the real agent's own. Left out
is what a process of its own would need: its folder, its keeper, and a job.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from websockets.asyncio.client import connect

from kici_scaler.agent import conduct
from kici_scaler.agent.channel import PING_SECONDS, Closed, converse
from kici_scaler.agent.conduct import Leave, Send
from kici_scaler.agent.exit import AgentExit, AgentFailure
from kici_scaler.agent.facts import facts
from kici_scaler.agent.life import STEADY_SECONDS, window
from kici_scaler.agent.outbox import Outbox
from kici_scaler.agent.protocol import (
    PROTOCOL_VERSION,
    ClaimResponse,
    FromGateway,
    Register,
    RegisterAck,
    Shutdown,
    Verdict,
    verdict_of,
)
from kici_scaler.agent.settings import AgentSettings, read_settings

AWAY = "gateway away"
"""Nobody listened there."""
_FACTS = facts()


@dataclass(frozen=True, slots=True)
class Member:
    """Who an agent is told that it is."""

    agent_id: str
    labels: tuple[str, ...]
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Chronicle:
    """What happened so far; moments are of the machine's monotonic clock."""

    registered: Sequence[float]
    """Of each registration that was acknowledged."""
    attempts: Sequence[float]
    """Of each connection that was begun and found somebody listening."""
    endings: Mapping[str, int]
    """How often a connection ended how."""
    left: Sequence[str]
    """Agents that will not come back, and why."""


class Agents:
    """A program for `Apart`: all of them, the first connection of only some at a time."""

    def __init__(self, url: str, members: Sequence[Member], at_once: int) -> None:
        self._agents = [_Agent(self, member, _settings(url, member)) for member in members]
        self._at_once = at_once
        self._online = 0
        self._registered: list[float] = []
        self._attempts: list[float] = []
        self._endings: Counter[str] = Counter()
        self._left: list[str] = []

    async def run(self) -> None:
        """Have every agent live."""
        booting = asyncio.Semaphore(self._at_once)
        await asyncio.gather(*(each.live(booting) for each in self._agents))
        await asyncio.get_running_loop().create_future()

    def online(self) -> int:
        """How many are registered now."""
        return self._online

    def chronicle(self) -> Chronicle:
        """Everything since the start."""
        return Chronicle(
            tuple(self._registered), tuple(self._attempts), dict(self._endings), tuple(self._left)
        )

    def registrations(self) -> int:
        """How many were acknowledged so far."""
        return len(self._registered)

    def came(self, begun: float) -> None:
        """A connection begun at that moment was acknowledged."""
        self._online += 1
        self._attempts.append(begun)
        self._registered.append(time.monotonic())

    def ended(self, begun: float, closed: Closed) -> None:
        """A connection is over, or never was."""
        how = _how(closed)
        self._endings[how] += 1
        self._online -= closed.registered
        if not closed.registered and how != AWAY:
            self._attempts.append(begun)

    def went(self, agent_id: str, why: str) -> None:
        """One of them will not come back."""
        self._left.append(f"{agent_id}: {why}")


def _how(closed: Closed) -> str:
    if closed.code is not None:
        return f"closed with {closed.code}" + ("" if closed.registered else ", unregistered")
    if closed.registered:
        return "broke"
    if "Connect call failed" in closed.reason:
        return AWAY
    return "broke, unregistered" if not closed.reason else closed.reason.partition(": ")[2]


def _settings(url: str, member: Member) -> AgentSettings:
    return read_settings(
        {
            "KICI_ORCHESTRATOR_URL": url,
            "KICI_AGENT_ID": member.agent_id,
            "KICI_AGENT_TOKEN": member.token,
            "KICI_LABELS": ",".join(member.labels),
        }
    )


class _Agent:
    """One of them, as its connection sees it (`channel.Host`)."""

    def __init__(self, crowd: Agents, member: Member, settings: AgentSettings) -> None:
        self._crowd = crowd
        self._member = member
        self._settings = settings
        self._state = conduct.State()
        self._connection = 0
        self._begun = 0.0
        self._resume_token: str | None = None
        self._booted = asyncio.Event()
        self._leave: asyncio.Future[Leave] | None = None
        self.outbox = Outbox(settings.resend)

    async def live(self, booting: asyncio.Semaphore) -> None:
        """One connection after another, as `kici_scaler.agent.life` has it."""
        async with booting:
            living = asyncio.ensure_future(self._stay_connected())
            booted = asyncio.ensure_future(self._booted.wait())
            await asyncio.wait({living, booted}, return_when=asyncio.FIRST_COMPLETED)
            booted.cancel()
        await living

    async def _stay_connected(self) -> None:
        self._leave = asyncio.get_running_loop().create_future()
        attempt = 0
        while True:
            self._begun = time.monotonic()
            closed = await converse(self)
            self._crowd.ended(self._begun, closed)
            if self._leave.done() or verdict_of(closed.code) is not Verdict.COME_BACK:
                self._crowd.went(self._member.agent_id, closed.reason or "told to go")
                return
            if closed.registered and time.monotonic() - self._begun >= STEADY_SECONDS:
                attempt = 0
            await asyncio.sleep(random.uniform(0, window(attempt, self._settings)))
            attempt += 1

    def url(self) -> str:
        return self._settings.url

    def claim_code(self) -> str | None:
        return None

    def claimed(self, answer: ClaimResponse) -> None:
        raise AgentFailure(AgentExit.REFUSED, f"nobody asked for {answer.type}")

    def greeting(self) -> Register:
        self._connection += 1
        return Register(
            protocol=PROTOCOL_VERSION,
            agent_id=self._member.agent_id,
            labels=self._member.labels,
            connection=self._connection,
            facts=_FACTS,
            token=self._member.token,
            resume_token=self._resume_token,
        )

    def registered(self, ack: RegisterAck) -> None:
        self._resume_token = ack.resume_token
        step = conduct.registered(self._state, ack)
        self._state = step.state
        for action in step.actions:
            if isinstance(action, Send):
                self.outbox.say(action.message)
        self._booted.set()
        self._crowd.came(self._begun)

    def heard(self, message: FromGateway) -> None:
        if isinstance(message, Shutdown) and self._leave is not None and not self._leave.done():
            self._leave.set_result(Leave(AgentExit.DONE))

    def disconnected(self) -> None:
        """Nothing is kept of a connection."""

    async def leaving(self) -> Leave:
        assert self._leave is not None
        return await asyncio.shield(self._leave)


class Connections:
    """A program for `Apart`: connections on which nothing is said, for the floor."""

    def __init__(self, url: str, count: int, at_once: int) -> None:
        self._url = url
        self._count = count
        self._at_once = at_once
        self._online = 0

    async def run(self) -> None:
        """Open all and answer pings."""
        opening = asyncio.Semaphore(self._at_once)
        await asyncio.gather(*(self._stay(opening) for _ in range(self._count)))

    def online(self) -> int:
        """How many are open."""
        return self._online

    async def _stay(self, opening: asyncio.Semaphore) -> None:
        async with opening:
            socket = await connect(
                self._url,
                compression=None,
                proxy=None,
                ping_interval=PING_SECONDS,
                ping_timeout=PING_SECONDS,
            )
        self._online += 1
        await socket.wait_closed()
        self._online -= 1
