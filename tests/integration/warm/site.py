"""A configured database without processes: the test itself plays workers and gateways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kici_scaler.domain.scalers import Cluster
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.scalers_file import load
from kici_scaler.service import destroy, fill, reload, request, start
from kici_scaler.service.answers import Answer
from kici_scaler.service.fill import Filled
from kici_scaler.service.reload import Candidate
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import agents, settings
from tests.support.rows import KIND, MACHINE, Rows

GATEWAY = "gw-1"
SHAPE = {"cpus": 1, "memory": "1Gi"}
PAYLOAD = {"keyId": "key", "sealed": "c2VhbGVk"}


def label_set(*labels: str, **more: Any) -> dict[str, Any]:
    """A label set of one CPU and one GiB."""
    return {"labels": list(labels), "binaryPath": "builtin:agent", "resources": SHAPE, **more}


def pool(size: int, *, idle: float = 300, **more: Any) -> dict[str, Any]:
    """A warm pool as it is written in the file."""
    return {"enabled": True, "size": size, "idleTimeoutSeconds": idle, **more}


def scaler(name: str, *label_sets: Mapping[str, Any], size: int = 0, **more: Any) -> dict[str, Any]:
    """A bare-metal scaler whose label sets keep `size` agents ready; 0 without a pool."""
    warm = {"warmPool": pool(size)} if size else {}
    return {
        "name": name,
        "type": KIND,
        "maxAgents": 1000,
        "maxConcurrentSpawns": 1000,
        "labelSets": list(label_sets) or [label_set(name)],
        **warm,
        **more,
    }


@dataclass
class Site:
    """One cluster's rows, and what happens to them."""

    rows: Rows
    folder: Path
    runtime: Runtime
    _jobs: int = field(default=0)

    def configure(self, *scalers: Mapping[str, Any], **top: Any) -> None:
        """Let a configuration take over; the one machine that serves it is up."""
        document = {"version": 1, "globalMaxAgents": 1000, "scalers": list(scalers), **top}
        file = self.folder / "scalers.yaml"
        file.write_text(yaml.safe_dump(document))
        reload.apply(self.runtime, Candidate.of(load(file), "test"), author="test")

    def cluster(self) -> Cluster:
        """The configuration in force."""
        return load(self.folder / "scalers.yaml").cluster

    def fill(self) -> Filled:
        """One pass over the pools."""
        return fill.fill(self.runtime)

    def request(self, *labels: str, job: str | None = None, **more: Any) -> Answer:
        """Ask for an agent."""
        self._jobs += 1
        body = {
            "jobId": job or f"j{self._jobs}",
            "runId": "run",
            "labels": list(labels),
            "payload": PAYLOAD,
            **more,
        }
        (answer,) = request.submit(self.runtime, [parse_request(body)])
        return answer

    def start(self) -> list[str]:
        """Start what is reserved, as workers and agents would; the agents are connected then."""
        orders, _ = start.take(self.runtime, backend_type=KIND, machine_id=MACHINE, most=1000)
        for order in orders:
            start.record_created(self.runtime, order, {"pid": "1"}, ())
            self.connect(order.row.agent_id, order.row.agent_labels)
        return [order.row.agent_id for order in orders]

    def connect(self, agent_id: str, labels: tuple[str, ...], number: int = 1) -> bool:
        """An agent registers, or comes back with a higher number."""
        with self.rows.begin() as connection:
            spawn = agents.lock_spawn(connection, agent_id)
            if spawn is None or spawn.state is SpawnState.DESTROYING:
                return False
            known = agents.adopt(
                connection,
                agent_id=agent_id,
                spawn_id=agent_id,
                labels=labels,
                gate=spawn.gate,
                facts={},
                gateway=GATEWAY,
                connection_number=number,
            )
            if known:
                agents.connect_spawn(
                    connection, agent_id=agent_id, adopter=GATEWAY, offer_seconds=30
                )
            return known

    def remove(self) -> int:
        """Confirm that what is ending is gone; returns how many were."""
        orders, _ = destroy.take(self.runtime, backend_type=KIND, machine_id=MACHINE, most=1000)
        return sum(destroy.confirm(self.runtime, order) for order in orders)

    def settle(self, most: int = 200) -> None:
        """Fill, start and remove until nothing changes any more."""
        for _ in range(most):
            done = self.fill()
            if not (self.start() or self.remove() or done.spawned or done.ended):
                return
        raise AssertionError(f"not settled after {most} rounds")

    def age(self, seconds: float) -> None:
        """Let every idle agent have idled so much longer."""
        self.rows.execute(
            "UPDATE spawns SET idle_at = idle_at - make_interval(secs => :s)", s=seconds
        )

    def idle(self, scaler: str | None = None) -> list[str]:
        """The ready agents, oldest first."""
        found = self.rows.all(
            "SELECT agent_id FROM spawns WHERE state = 'idle' AND job_id IS NULL"
            " AND scaler = coalesce(:scaler, scaler) ORDER BY idle_at, agent_id",
            scaler=scaler,
        )
        return [str(row[0]) for row in found]

    def states(self, scaler: str | None = None) -> dict[str, int]:
        """How many spawns are in each state."""
        found = self.rows.all(
            "SELECT state, count(*) AS held FROM spawns WHERE scaler = coalesce(:scaler, scaler)"
            " GROUP BY state",
            scaler=scaler,
        )
        return {str(row.state): int(row.held) for row in found}

    def counted(self) -> dict[str, int]:
        """What was counted, over all pools."""
        found = self.rows.all("SELECT what, sum(n) AS n FROM warm_counts GROUP BY what")
        return {str(row.what): int(row.n) for row in found}

    def set_window(self, key: str, value: float) -> None:
        """Change a window of the cluster."""
        self.rows.call(settings.put, key, value, changed_by="test")
