"""How the agent's process ends."""

from __future__ import annotations

from enum import IntEnum


class AgentExit(IntEnum):
    """Exit codes of the agent; part of its interface, told in `docs/agent-protocol.md`."""

    DONE = 0
    """The result is acknowledged, nobody wanted the agent, or it was told to go."""
    INTERNAL = 1
    """A defect of the agent; the log has a traceback."""
    UNUSABLE = 2
    """Its environment is incomplete or wrong; nothing was connected."""
    REFUSED = 3
    """The gateway refused it for ever."""
    VIOLATION = 4
    """The gateway said that this agent breaks the protocol."""
    UNREPORTED = 5
    """Stopped before the gateway acknowledged the result, which is in the spool."""
    UNREACHABLE = 6
    """No gateway was reached for the longest time an agent waits."""


class AgentFailure(Exception):
    """The agent cannot go on; the message is for a person, `exit` for its backend."""

    def __init__(self, exit_code: AgentExit, message: str) -> None:
        super().__init__(message)
        self.exit = exit_code
