"""What a worker's own environment hands on to its agents."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "KICI_AGENT_ENV_"


def forwarded_environment(ambient: Mapping[str, str]) -> dict[str, str]:
    """`KICI_AGENT_ENV_X=v` becomes `X=v` for agents; the bare prefix names nothing."""
    return {
        name.removeprefix(PREFIX): value
        for name, value in ambient.items()
        if name.startswith(PREFIX) and name != PREFIX
    }
