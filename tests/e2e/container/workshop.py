"""Orders for agents that run a script of the test's own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from kici_scaler.domain.scalers import Amount, BackendType, LabelSet, Resources, Scaler
from tests.e2e.container.engines import TestEngine
from tests.e2e.container.harness import IMAGE
from tests.support.waiting import eventually
from workers.container import ContainerBackend
from workers.contract import (
    BackendContext,
    ComputeRef,
    Deadline,
    LifecycleEvent,
    RegistryCredentials,
    SpawnOrder,
)
from workers.errors import PartlyListed
from workers.machine import local_machine

GATEWAY_PORT = 4000
GATEWAY_URL = f"ws://127.0.0.1:{GATEWAY_PORT}/v1/agents"

IDLE = "trap 'exit 143' TERM; sleep 600 & wait"
"""An agent that waits to be told to go."""


def soon() -> Deadline:
    """What a call is given when a test is not about its deadline."""
    return Deadline.after(60)


@dataclass
class Workshop:
    """One installation's worker on one runtime; `shared` is `/harness` in its containers."""

    engine: TestEngine
    folder: Path
    installation_id: str = field(default_factory=lambda: f"test-{secrets.token_hex(3)}")
    told: list[LifecycleEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared.mkdir(parents=True, exist_ok=True)

    @property
    def shared(self) -> Path:
        """The folder that containers see as `/harness`."""
        return self.folder / "shared"

    @property
    def state_dir(self) -> Path:
        """The worker's own folder."""
        return self.folder / "state"

    def open(self) -> ContainerBackend:
        """The backend as a freshly started worker has it."""
        ambient = {"PATH": os.environ["PATH"]}
        machine = local_machine("test-machine")
        return ContainerBackend(
            BackendContext(self.installation_id, machine, self.state_dir, ambient)
        )

    def label_set(self, script: str = "", **options: object) -> LabelSet:
        """A label set whose agents run that shell script."""
        (self.shared / "agent.sh").write_text(f'rm -f "$KICI_AGENT_TOKEN_FILE"\n{script}\n')
        own = {"image": IMAGE, "volumes": (f"{self.shared}:/harness",)}
        return LabelSet(0, ("linux", "x64"), options={**own, **options})

    def scaler(self, *label_sets: LabelSet, **options: object) -> Scaler:
        """A scaler of these label sets on this runtime."""
        used = label_sets or (self.label_set(),)
        options = {**self.engine.options, **options}
        return Scaler("pool", BackendType.CONTAINER, 10, used, options=options)

    def order(
        self,
        script: str = IDLE,
        *,
        token: int = 1,
        limits: Amount | None = None,
        job_image: str | None = None,
        registry: RegistryCredentials | None = None,
        gateway_url: str = GATEWAY_URL,
        options: Mapping[str, object] | None = None,
        **label_options: object,
    ) -> SpawnOrder:
        """An order for a new agent."""
        agent_id = f"scaler-container-{secrets.token_hex(6)}"
        label_set = self.label_set(script, **label_options)
        limits = limits or Amount()
        return SpawnOrder(
            installation_id=self.installation_id,
            scaler="pool",
            agent_id=agent_id,
            lease_token=token,
            label_set=replace(label_set, resources=Resources(limits=limits)),
            gateway_url=gateway_url,
            agent_token=f"secret-of-{agent_id}",
            labels=("linux", "x64"),
            job_id=f"job-of-{agent_id}",
            run_id="run-1",
            limits=limits,
            job_image=job_image,
            registry=registry,
            options={**self.engine.options, **(options or {})},
            report=self.told.append,
        )

    def ref(self, order: SpawnOrder, token: int = 2) -> ComputeRef:
        """The compute of an order."""
        return ComputeRef(
            order.installation_id, order.scaler, order.agent_id, token, options=order.options
        )

    def said(self, name: str, within: float = 30.0) -> str:
        """What a script wrote into `/harness/NAME`, once it did so in full."""
        path = self.shared / name
        eventually(path.exists, within, why=f"{name} was not written")
        return path.read_text()

    def close(self) -> None:
        """Remove all containers of this installation, and its rules."""
        api = self.engine.client()
        marks = [f"kici-installation={self.installation_id}"]
        for each in api.containers(all=True, filters={"label": marks}):
            api.remove_container(each["Id"], force=True, v=True)
        api.close()
        with suppress(PartlyListed):
            self.open().inventory(self.installation_id, soon())
