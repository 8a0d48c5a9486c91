"""What every part of a gateway process shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import OperationalError

from kici_scaler.broker.log_stream import LogStream
from kici_scaler.gateway.feed import LogFeed
from kici_scaler.gateway.limits import CLAIMS, FAILED_LOGINS, Buckets
from kici_scaler.gateway.lines import LineOutput
from kici_scaler.gateway.resume import ResumeTokens
from kici_scaler.gateway.session import Session, Sessions
from kici_scaler.gateway.threads import Threads
from kici_scaler.sealing import SealingKeys
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.engine import Contended, DatabaseUnreachable

TRANSIENT = (DatabaseUnreachable, Contended, OperationalError)
"""What passes by itself: an unreachable database, a lock not got in time, a deadlock."""


@dataclass(slots=True)
class Gateway:
    """One process of the front; used on its event loop's thread only."""

    runtime: Runtime
    keys: SealingKeys
    stream: LogStream
    installation_id: str = "default"
    lines: LineOutput = field(default_factory=LineOutput)
    threads: Threads = field(default_factory=Threads)
    sessions: Sessions = field(default_factory=Sessions)
    failed_logins: Buckets = field(default_factory=lambda: Buckets(FAILED_LOGINS))
    claims: Buckets = field(default_factory=lambda: Buckets(CLAIMS))
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once this process takes nothing new and ends what waits."""
    incarnation: str = ""
    """The current one; empty before the first is recorded."""
    beaten_at: float = 0.0
    """Loop time of the last heartbeat that the database took."""
    followers: int = 0
    """HTTP callers that follow a log right now."""
    departed: list[tuple[str, int]] = field(default_factory=list)
    """Agents (id, connection number) whose sockets closed, to be recorded together."""
    background: set[asyncio.Task[None]] = field(default_factory=set)
    look_after: Callable[[str], None] = field(default=lambda _agent_id: None)
    """Has what this process owes an agent read soon."""
    feed: LogFeed = field(init=False)
    resume: ResumeTokens = field(init=False)

    def __post_init__(self) -> None:
        self.feed = LogFeed(self.stream)
        self.resume = ResumeTokens(self.keys)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something short beside what is going on."""
        task = asyncio.get_running_loop().create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    def part(self, session: Session) -> None:
        """A session's socket is closed: forget it, and have that recorded."""
        session.gone = True
        self.sessions.remove(session)
        if not session.superseded:
            self.departed.append((session.agent_id, session.connection))
