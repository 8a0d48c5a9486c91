"""Orders for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kici_scaler.domain.scalers import LabelSet
from workers.container.place import Place, Runtime
from workers.container.plan import Surroundings
from workers.container.seen import Facts
from workers.contract import SpawnOrder

DOCKER = Facts("docker", "20.10.24", "1.41", 4, "json-file", False)
AROUND = Surroundings(Place("unix:///var/run/docker.sock", Runtime.DOCKER), DOCKER)


def order(
    label_set: Mapping[str, object] | None = None,
    options: Mapping[str, object] | None = None,
    **more: object,
) -> SpawnOrder:
    """An ordinary order of an agent in the image `agents/linux:1`."""
    own = {"image": "agents/linux:1", **(label_set or {})}
    made = SpawnOrder(
        installation_id="default",
        scaler="pool",
        agent_id="scaler-container-0123456789ab",
        lease_token=7,
        label_set=LabelSet(0, ("linux", "x64"), options=own),
        gateway_url="ws://172.30.0.1:4000/v1/agents",
        agent_token="the-secret",
        labels=("x64", "Linux"),
        options=options or {},
    )
    return replace(made, **more)  # type: ignore[arg-type]  # named by the test
