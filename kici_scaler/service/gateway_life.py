"""A gateway's own life: its incarnation, its heartbeat, what it owes its agents."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence

from kici_scaler.service.runtime import Runtime
from kici_scaler.store import agents, gateways
from kici_scaler.store.agents import Errand
from kici_scaler.store.engine import transaction


def open_incarnation(runtime: Runtime) -> str:
    """Take a new incarnation id and record it; each start of a gateway has its own."""
    incarnation = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    with transaction(runtime.engine) as connection:
        gateways.open_incarnation(
            connection, incarnation, host=socket.gethostname(), pid=os.getpid()
        )
    return incarnation


def beat(runtime: Runtime, incarnation: str) -> bool:
    """Stay fresh; False when this incarnation was declared dead: take a new one."""
    with transaction(runtime.engine) as connection:
        return gateways.heartbeat(connection, incarnation)


def close_incarnation(runtime: Runtime, incarnation: str) -> None:
    """An orderly stop: agents are free to return through another gateway."""
    with transaction(runtime.engine) as connection:
        gateways.close_incarnation(connection, incarnation)


def errands(
    runtime: Runtime, incarnation: str, agent_ids: Sequence[str] | None = None
) -> list[Errand]:
    """What to tell the connected agents (or these): offers, cancellations, farewells."""
    with transaction(runtime.engine) as connection:
        return agents.errands(connection, incarnation, agent_ids=agent_ids)
