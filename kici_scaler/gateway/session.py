"""One registered agent on this gateway: what was said to it, and what it still waits for.

A session costs no task while nothing happens. What takes time (a transaction, a slow
socket) is done step by step, in order, by a task that lives while there are steps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kici_scaler.agent.protocol import ProtocolViolation
from kici_scaler.gateway import log_context
from kici_scaler.gateway.lines import LineOrigin
from kici_scaler.gateway.link import Link, LinkClosed

log = structlog.get_logger(__name__)

Step = Callable[[], Awaitable[None]]

MOST_STEPS: Final = 16
"""Unfinished steps of one agent; one that causes more floods."""
TAIL_LINES: Final = 50
"""Lines of output that are kept with the outcome; the reference's number."""


class Session:
    """An agent's connection after it registered; lives on the event loop's thread."""

    __slots__ = (
        "_steps",
        "_worker",
        "agent_id",
        "cancelled",
        "connection",
        "done_job",
        "finishing",
        "gone",
        "link",
        "offered_at",
        "offered_job",
        "origin",
        "over_at",
        "ready",
        "resumed",
        "running",
        "seq",
        "single_use",
        "superseded",
        "tail",
        "told_at",
    )  # fmt: skip

    def __init__(self, link: Link, agent_id: str, connection: int, origin: LineOrigin) -> None:
        self.link = link
        self.agent_id = agent_id
        self.connection = connection
        self.origin = origin
        self.ready = False
        """It said `config.ack`."""
        self.offered_job: str | None = None
        self.offered_at = 0.0
        self.running: str | None = None
        """The job whose payload it was sent, or that it said it holds."""
        self.resumed = False
        """It came with a job: earlier lines went through another connection."""
        self.cancelled = False
        """It was told to stop its job."""
        self.told_at = 0.0
        """When it was told to go; 0 for not yet."""
        self.finishing = False
        """Its result is on its way into the database, or there."""
        self.over_at = 0.0
        """When its result was acknowledged; 0 for not yet."""
        self.done_job: str | None = None
        """Its last job, whose end it reported."""
        self.single_use = True
        """Made by a scaler: its one job is its last."""
        self.superseded = False
        self.gone = False
        """Its socket is closed."""
        self.seq = -1
        """Highest `seq` of its log seen so far; -1 for not looked up yet."""
        self.tail: deque[str] | None = None
        self._steps: deque[tuple[str, Step]] | None = None
        self._worker: asyncio.Task[None] | None = None

    @property
    def waits_for_a_job(self) -> bool:
        """Whether it may be offered one, as far as is known here."""
        unasked = self.offered_job is None and self.running is None
        return self.ready and unasked and not (self.finishing or self.told_at or self.superseded)

    def keep(self, lines: tuple[str, ...]) -> None:
        """Remember the last lines of output for the outcome."""
        if self.tail is None:
            self.tail = deque(maxlen=TAIL_LINES)
        self.tail.extend(lines)

    def begin_anew(self) -> None:
        """Its job is over and it stays for another."""
        self.offered_job, self.offered_at, self.running = None, 0.0, None
        self.resumed = self.cancelled = self.finishing = False
        self.over_at, self.seq, self.tail = 0.0, -1, None

    def do(self, what: str, step: Step) -> None:
        """Do this after the steps before it; nothing when the same still waits to be done.

        Raises:
            ProtocolViolation: the agent caused more steps than it may.
        """
        if self._steps is None:
            self._steps = deque()
        if any(waiting == what for waiting, _ in self._steps):
            return
        if len(self._steps) >= MOST_STEPS:
            raise ProtocolViolation("too many messages that wait to be answered")
        self._steps.append((what, step))
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    @property
    def is_idle(self) -> bool:
        """Whether no step waits to be done."""
        return self._worker is None

    async def settled(self) -> None:
        """Return once no step is left."""
        if self._worker is not None:
            await asyncio.wait({self._worker})

    async def _work(self) -> None:
        steps = self._steps
        assert steps is not None
        try:
            while steps:
                log_context.begin_step(self.origin)
                await steps[0][1]()
                steps.popleft()
        except LinkClosed:
            steps.clear()
        except Exception as error:  # Whatever one agent causes ends with that agent.
            log.exception("agent session failed", agent=self.agent_id, error=str(error))
            steps.clear()
            await self.link.close(1011, "the gateway failed; come back later")
        finally:
            self._worker = None
            self._steps = None


class Sessions:
    """The open sessions by agent id; at most one each."""

    __slots__ = ("_by_agent",)

    def __init__(self) -> None:
        self._by_agent: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._by_agent)

    def get(self, agent_id: str) -> Session | None:
        """The session of an agent, if it is connected here."""
        return self._by_agent.get(agent_id)

    def all(self) -> list[Session]:
        """Every open session."""
        return list(self._by_agent.values())

    def put(self, session: Session) -> Session | None:
        """Add a session; returns the one it takes the place of."""
        older = self._by_agent.get(session.agent_id)
        self._by_agent[session.agent_id] = session
        if older is not None:
            older.superseded = True
        return older

    def remove(self, session: Session) -> None:
        """Forget a session that is over; a newer one of the same agent stays."""
        if self._by_agent.get(session.agent_id) is session:
            del self._by_agent[session.agent_id]
