"""What API keys are good for."""

from __future__ import annotations

from enum import StrEnum


class KeyScope(StrEnum):
    """What a key is good for."""

    OPERATOR = "operator"
    """Everything."""
    DISPATCHER = "dispatcher"
    """Scale requests, their logs and events, and what the cluster can serve."""
    AGENT = "agent"
    """A static agent's registration on the agent channel; nothing over HTTP."""
