"""Orders for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kici_scaler.domain.scalers import LabelSet
from workers.contract import SpawnOrder

AGENT = "scaler-firecracker-0123456789ab"


def order(label_set: Mapping[str, object] | None = None, **more: object) -> SpawnOrder:
    """An ordinary order of an agent in a microVM."""
    made = SpawnOrder(
        installation_id="default",
        scaler="microvm",
        agent_id=AGENT,
        lease_token=7,
        label_set=LabelSet(0, ("linux", "vm"), options=label_set or {}),
        gateway_url="ws://10.0.0.1:4000/v1/agents",
        agent_token="the-secret",
        labels=("linux", "vm"),
    )
    return replace(made, **more)  # type: ignore[arg-type]  # named by the test
