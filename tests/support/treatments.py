"""How a connection can be broken: what the TCP proxy does to bytes, and what it counted."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Mode(enum.Enum):
    """Treatments that need no numbers."""

    PASS = enum.auto()
    """Forward."""
    RESET = enum.auto()
    """Reset (RST) both sides as soon as a byte would pass, and new connections at once."""
    SWALLOW = enum.auto()
    """Read and forward nothing. On requests: a hung server. On replies: one that acts unheard."""


@dataclass(frozen=True)
class Delay:
    """Wait `seconds` before forwarding what was read; the order stays."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """Close both sides around a request that holds `pattern`; letter case counts.

    `times` requests are treated so and the rest pass; None cuts every one.
    """

    pattern: bytes
    times: int | None = 1


class CutReply(Cut):
    """Forward the request, then close when its reply comes: done, but the client cannot know."""


class CutRequest(Cut):
    """Close instead of forwarding: not done, and the client sees the same as of `CutReply`."""


Treatment = Mode | Delay | Cut


@dataclass(frozen=True)
class Counts:
    """What passed through and what was broken, since the proxy started.

    Attributes:
        accepted: connections from clients, those that were reset at once included.
        unreachable: of these, closed because the target refused.
        resets: connections reset by `Mode.RESET` or `drop`.
        cuts: requests cut by their pattern, before or after they were forwarded.
        request_bytes: forwarded to the server.
        reply_bytes: forwarded to the client.
        swallowed_bytes: read and forwarded nowhere, of either direction.
    """

    accepted: int = 0
    unreachable: int = 0
    resets: int = 0
    cuts: int = 0
    request_bytes: int = 0
    reply_bytes: int = 0
    swallowed_bytes: int = 0
