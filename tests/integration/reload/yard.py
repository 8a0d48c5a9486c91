"""A cluster without processes: the test plays dispatcher, workers, gateway and agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kici_scaler.domain.spawn import CAN_REGISTER, SpawnState
from kici_scaler.service import admit, destroy, finish, reload, request, start
from kici_scaler.service.answers import Answer
from kici_scaler.service.reload import Reloaded
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import agents
from tests.support.admissions import History
from tests.support.rows import ENVELOPE, MACHINE, Rows

KINDS: Final = ("bare-metal", "container")
GATEWAY: Final = "gw-1"
S = SpawnState
LIVE: Final = ["reserved", "spawning", "booting", "idle", "busy"]

Document = dict[str, Any]
Dump = dict[str, list[tuple[Any, ...]]]


def scaler(name: str, *labels: str, **more: Any) -> Document:
    """A scaler with one label set: these labels, or its name."""
    its = {"name": name, "type": "bare-metal", "maxAgents": 100, "maxConcurrentSpawns": 100, **more}
    made_of = {"binaryPath": "builtin:agent"} if its["type"] == "bare-metal" else {"image": "x"}
    return {"labelSets": [{"labels": list(labels) or [name], **made_of}], **its}


def document(*scalers: Document, **top: Any) -> Document:
    """A configuration of these scalers."""
    return {"version": 1, "globalMaxAgents": 1000, "scalers": list(scalers), **top}


@dataclass
class Yard:
    """One cluster's rows, and what happens to them."""

    rows: Rows
    runtime: Runtime
    history: History
    _jobs: int = field(default=0)

    def reload(self, *scalers: Document, **top: Any) -> Reloaded:
        """Let a configuration take over."""
        return self.take_over(document(*scalers, **top))

    def take_over(self, wanted: Mapping[str, object]) -> Reloaded:
        """Let a whole document take over; admissions after it are held to its caps."""
        candidate = reload.of_document(self.runtime.engine, wanted, "test")
        done = reload.apply(self.runtime, candidate, author="test")
        self.history.clusters[done.revision_id] = candidate.cluster
        return done

    def ask(self, *labels: str, **more: Any) -> Answer:
        """Ask for an agent for a new job."""
        self._jobs += 1
        body = {"jobId": f"j{self._jobs}", "runId": "run", "labels": list(labels),
                "payload": ENVELOPE, **more}  # fmt: skip
        (answer,) = request.submit(self.runtime, [parse_request(body)])
        return answer

    def decide(self) -> None:
        """Decide what waits."""
        admit.run_pass(self.runtime)

    def clear(self) -> None:
        """Begin anew, on the same machines and the same gateway."""
        for table in ("agents", "spawns", "scale_requests", "scaler_states", "config_revisions",
                      "history"):  # fmt: skip
            self.rows.execute(f"DELETE FROM {table}")
        self.history.clusters.clear()

    def start(self, most: int = 1000) -> list[str]:
        """Start what slots allow; the compute exists then, and its agents have yet to come."""
        started = []
        for kind in KINDS:
            orders, _ = start.take(self.runtime, backend_type=kind, machine_id=MACHINE, most=most)
            for order in orders:
                start.record_created(self.runtime, order, {"pid": "1"}, ())
            started += [order.row.agent_id for order in orders]
        return started

    def connect(self, agent_id: str) -> None:
        """The agent of a spawn registers; one that is told to end meanwhile is turned away."""
        with self.rows.begin() as connection:
            spawn = agents.lock_spawn(connection, agent_id)
            if spawn is None or spawn.state not in CAN_REGISTER:
                return
            agents.adopt(
                connection,
                agent_id=agent_id,
                spawn_id=agent_id,
                labels=("linux",),
                gate=spawn.gate,
                facts={},
                gateway=GATEWAY,
                connection_number=1,
            )
            agents.connect_spawn(connection, agent_id=agent_id, adopter=GATEWAY, offer_seconds=30)

    def accept(self, agent_id: str) -> bool:
        """Its job is accepted; whether the agent has one that it may begin."""
        job = self.rows.get("spawns", agent_id)["job_id"]
        if job is None:
            return False
        return finish.accept(self.runtime, agent_id=agent_id, job_id=job) is not None

    def finish(self, agent_id: str) -> None:
        """Its job is done."""
        job = self.rows.get("spawns", agent_id)["job_id"]
        done = finish.finish(
            self.runtime, agent_id=agent_id, job_id=job, result={"status": "succeeded"}
        )
        assert done

    def remove(self) -> int:
        """Confirm that what is ending is gone; how many were."""
        gone = 0
        for kind in KINDS:
            orders, _ = destroy.take(self.runtime, backend_type=kind, machine_id=MACHINE, most=1000)
            gone += sum(destroy.confirm(self.runtime, order) for order in orders)
        return gone

    def agents_in(self, *states: SpawnState) -> list[str]:
        """The agents in these states, oldest first."""
        found = self.rows.all(
            "SELECT agent_id FROM spawns WHERE state = ANY(:states) ORDER BY reserved_at, agent_id",
            states=[each.value for each in states],
        )
        return [str(row.agent_id) for row in found]

    def run_everything(self) -> None:
        """Let every agent come, run its job to the end, and be removed, until nothing is left."""
        for _ in range(100):
            self.decide()
            self.start()
            for agent_id in self.agents_in(S.BOOTING):
                self.connect(agent_id)
            for agent_id in self.agents_in(S.IDLE):
                self.accept(agent_id)
            for agent_id in self.agents_in(S.BUSY):
                self.finish(agent_id)
            if not self.remove() and not self.rows.count("spawns"):
                return
        raise AssertionError(self.rows.all("SELECT agent_id, state, job_id FROM spawns"))

    def spawns(self, where: str = "true", **values: Any) -> dict[str, Mapping[str, Any]]:
        """Whole spawn rows by agent id."""
        found = self.rows.all(f"SELECT * FROM spawns WHERE {where}", **values)
        return {row.agent_id: dict(row._mapping) for row in found}

    def holders(self, job: str) -> list[str]:
        """The live spawns that stand for a job."""
        return sorted(self.spawns("job_id = :job AND state = ANY(:live)", job=job, live=LIVE))

    def unaccounted(self) -> list[str]:
        """Jobs that are not over and neither wait nor have exactly one live spawn."""
        found = self.rows.all("SELECT job_id, state FROM scale_requests WHERE finished_at IS NULL")
        return [
            f"{row.job_id}: {row.state}, {self.holders(row.job_id)}"
            for row in found
            if len(self.holders(row.job_id)) != (0 if row.state == "waiting" else 1)
        ]

    def dump(self) -> Dump:
        """Every row of every table."""
        tables: Sequence[str] = [
            row.tablename
            for row in self.rows.all("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ]
        return {
            name: sorted(map(tuple, self.rows.all(f"SELECT t::text FROM {name} t")))
            for name in tables
        }
