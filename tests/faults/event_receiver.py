"""The example's receiver in every bad mood, and a ledger of what it was asked."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from examples.event_provisioner.machines import Machines
from examples.event_provisioner.receiver import SCALE_DOWN, SCALE_UP, Provisioner

Act = Callable[[], HTTPStatus]
Mood = Callable[[Act], HTTPStatus]
"""Gets what would do the right thing, and answers as it likes."""


class NeverAnswered(Exception):
    """The connection ends without an answer."""


def good(act: Act) -> HTTPStatus:
    """Acts and answers."""
    return act()


def failing(_act: Act) -> HTTPStatus:
    """Answers 500 and does nothing."""
    return HTTPStatus.INTERNAL_SERVER_ERROR


def refusing(_act: Act) -> HTTPStatus:
    """Refuses for good."""
    return HTTPStatus.FORBIDDEN


def idle(_act: Act) -> HTTPStatus:
    """Says that it has done what it was asked, and has not."""
    return HTTPStatus.NO_CONTENT


def failing_after(act: Act) -> HTTPStatus:
    """Acts, and answers 500 all the same."""
    act()
    return HTTPStatus.INTERNAL_SERVER_ERROR


def resetting(_act: Act) -> HTTPStatus:
    """Ends the connection without an answer, having done nothing."""
    raise NeverAnswered


@dataclass
class Slow:
    """Answers when nobody waits for it any more; `acts` says whether it acted before that."""

    acts: bool
    over: threading.Event
    seconds: float = 30.0

    def __call__(self, act: Act) -> HTTPStatus:
        status = act() if self.acts else HTTPStatus.NO_CONTENT
        self.over.wait(self.seconds)
        return status


@dataclass
class MoodyReceiver:
    """A provisioner whose moods a test chooses, one request at a time.

    `next_mood` is asked with the event of each request, the first try of it or a later one.
    """

    machines: Machines
    provisioner: Provisioner
    next_mood: Callable[[Mapping[str, Any]], Mood] = lambda _event: good
    events: list[Mapping[str, Any]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, headers: Mapping[str, str], body: bytes) -> HTTPStatus:
        """What the mood makes of an event."""
        event = json.loads(body)
        with self._lock:
            self.events.append(event)
            mood = self.next_mood(event)
        return mood(lambda: self.provisioner.handle(headers, body))

    def asked(self, kind: str) -> Counter[str]:
        """How often each agent was asked for (`up`) or away (`down`)."""
        type_ = {"up": SCALE_UP, "down": SCALE_DOWN}[kind]
        with self._lock:
            return Counter(e["data"]["agentId"] for e in self.events if e["type"] == type_)

    def codes(self) -> set[str]:
        """Every claim code that was ever sent."""
        with self._lock:
            return {e["data"]["claimCode"] for e in self.events if e["type"] == SCALE_UP}
