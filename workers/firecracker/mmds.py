"""What a guest is told, as the document of Firecracker's metadata service; pure.

The one place where the agent's token is handed over: in memory, over a socket that only root
and the microVM's user reach, cleared once the agent has said that it is configured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from workers.contract import SpawnOrder
from workers.environment import label_set_environment

BUDGET_BYTES = 32_768
"""For all variables together; the service itself holds 51,200 bytes."""

_SEPARATORS = 2
"""Counted for each entry: its `=` and its end."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

CLEARED: Mapping[str, object] = {"latest": {"meta-data": {}}}
"""What is there once nothing is needed any more."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables that a guest is given, and why others are not among them."""

    variables: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def within_budget(variables: Mapping[str, str]) -> Environment:
    """The variables that fit; one that does not is left out, later and smaller ones may fit."""
    kept: dict[str, str] = {}
    warnings: list[str] = []
    used = 0
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            warnings.append(f"`{name}` is no name of a variable and is not given to the agent")
            continue
        size = len(name.encode()) + len(value.encode()) + _SEPARATORS
        if used + size > BUDGET_BYTES:
            warnings.append(
                f"`{name}` ({size} bytes) is not given to the agent: all variables together may "
                f"have {BUDGET_BYTES} bytes"
            )
            continue
        used += size
        kept[name] = value
    return Environment(kept, tuple(warnings))


def environment_of(order: SpawnOrder) -> Environment:
    """What the worker forwards, and over it the label set's own `env`."""
    return within_budget({**order.environment, **label_set_environment(order)})


def document(
    order: SpawnOrder, gateway: str, gateway_url: str, environment: Mapping[str, str]
) -> dict[str, object]:
    """All of it; `gateway` is the host's address on the guest's bridge."""
    told: dict[str, object] = {
        "kici-orchestrator-url": gateway_url,
        "kici-agent-id": order.agent_id,
        "kici-labels": ",".join(order.labels),
        "kici-scaler-managed": "1",
        "kici-gateway-ip": gateway,
    }
    if order.agent_token:
        told["kici-agent-token"] = order.agent_token
    mode = order.label_set.text("backpressureMode")
    if mode:
        told["kici-backpressure-mode"] = mode
    if environment:
        told["kici-env"] = dict(environment)
    return {"latest": {"meta-data": told}}
