"""Names of what a microVM has on its machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

TAP_PREFIX = "kici-"
TAP_PATTERN = re.compile(r"^kici-[0-9a-f]{8}$")
"""What a guest's interface is called; nothing else is ever taken for one."""

PROBE_TAP = "kici-isoprobe"
"""Made and removed to see whether ports can be isolated."""

PROTECTED = frozenset({"kici-br0", "kici-br1", "kici-m01", PROBE_TAP})
"""Interfaces that begin like a guest's and are none."""

CANDIDATES = 8
"""How many names are tried for one agent."""


def tap_names(agent_id: str) -> Iterator[str]:
    """The names an agent's interface may have, the usual one first.

    The last eight characters of the id, since ids share their beginnings. Two ids may end
    alike, so others follow, as fixed for the id as the first. All fit the 15 characters that
    the kernel allows.
    """
    last = agent_id[-8:]
    if TAP_PATTERN.match(TAP_PREFIX + last):
        yield TAP_PREFIX + last
    for number in range(1, CANDIDATES):
        digest = hashlib.sha256(f"{agent_id}/{number}".encode()).hexdigest()
        yield TAP_PREFIX + digest[:8]


def ports_of(bridge: str) -> str:
    """How the interfaces of a bridge are matched: `kici-br0` has `kici-*`."""
    return f"{bridge.partition('-')[0]}-*"
