"""Shapes of status and capacity answers, camelCase on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Self

from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import UNCAPPED, Cap
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway.models import Shape
from kici_scaler.service.status import ClusterStatus, ScalerStatus, Tally
from kici_scaler.store.census import GatewayCount
from kici_scaler.store.machines import MachineRow


class Amounts(Shape):
    """CPUs and bytes of memory."""

    cpus: float
    mem_bytes: int

    @classmethod
    def of(cls, need: Need) -> Self:
        """From what is held."""
        return cls(cpus=need.cpu_millis / 1000, mem_bytes=need.memory_bytes)


class CapView(Shape):
    """The most that may be held of each; null is unlimited."""

    cpus: float | None
    mem_bytes: int | None

    @classmethod
    def of(cls, cap: Cap) -> Self | None:
        """None for no cap at all."""
        if cap == UNCAPPED:
            return None
        cpus = None if cap.cpu_millis is None else cap.cpu_millis / 1000
        return cls(cpus=cpus, mem_bytes=cap.memory_bytes)


class ScalerView(Shape):
    """One scaler. `activeCount` is all that counts against `maxAgents`, ending agents too.

    `maxAgents` is per machine for local types, for the cluster for `event`.
    """

    name: str
    type: str
    active_count: int
    max_agents: int
    spawns_on_local_host: bool
    in_flight_count: int
    warm_count: int
    ending_count: int
    states: Mapping[SpawnState, int]
    usage: Amounts
    resource_cap: CapView | None
    machine_pool: str | None
    label_sets: list[list[str]]
    """What a job's labels are matched against, one list a label set."""
    label_set_mandatory_labels: list[list[str]]
    """What a job must ask for by name, one list a label set."""
    mandatory_labels: list[str]
    """The same for all label sets together."""
    retiring: bool
    retiring_since: datetime | None
    """When it left the configuration; it is over with its last agent."""
    retiring_revision: int | None
    """The revision that it was last in."""
    standing: str
    why_nothing: str
    """Why it takes nothing at the moment; empty when it does."""
    degraded_on: Mapping[str, str]
    """Machines that cannot run it at the moment, and why."""
    failure_streak: int
    backoff_seconds: float

    @classmethod
    def of(cls, status: ScalerStatus) -> Self:
        """From what was read; a retiring scaler shows its labels as they were written."""
        scaler, tally, state = status.scaler, status.tally, status.state
        gates = [sorted(each.gate) for each in status.offers]
        return cls(
            name=scaler.name,
            type=scaler.type.value,
            active_count=tally.active,
            max_agents=scaler.max_agents,
            spawns_on_local_host=scaler.type.is_local,
            in_flight_count=tally.in_flight,
            warm_count=tally.ready_warm,
            ending_count=tally.ending,
            states=tally.by_state(),
            usage=Amounts.of(tally.held),
            resource_cap=CapView.of(scaler.resource_cap),
            machine_pool=scaler.machine_pool,
            label_sets=[list(each.labels) for each in scaler.label_sets]
            if status.retiring
            else [sorted(each.routable) for each in status.offers],
            label_set_mandatory_labels=gates,
            mandatory_labels=sorted({label for gate in gates for label in gate}),
            retiring=status.retiring,
            retiring_since=state.since if state and status.retiring else None,
            retiring_revision=state.revision_id if state and status.retiring else None,
            standing=state.standing.value if state else "active",
            why_nothing=status.restraint,
            degraded_on=status.degraded,
            failure_streak=state.failure_streak if state else 0,
            backoff_seconds=state.backoff_seconds if state else 0.0,
        )


class MachineView(Shape):
    """A place where compute lives, as its worker announced it."""

    id: str
    backend_type: str
    state: str
    is_fresh: bool
    held_back: bool
    os: str | None
    arch: str | None
    cpus: float
    mem_bytes: int
    serves: list[str] | None
    degraded: Mapping[str, str]
    """Scalers that it cannot run at the moment, and why."""
    active_count: int
    usage: Amounts
    last_heartbeat: datetime
    address: str | None = None
    """Where a machine of a fleet is; none for a worker's own host."""
    note: str | None = None
    """Why its worker cannot reach it."""

    @classmethod
    def of(cls, row: MachineRow, tally: Tally) -> Self:
        """From its row and what lives there."""
        return cls(
            id=row.machine_id,
            backend_type=row.backend_type,
            state=row.state,
            is_fresh=row.is_fresh,
            held_back=row.held_back,
            os=row.os,
            arch=row.arch,
            cpus=row.cpu_millis / 1000,
            mem_bytes=row.memory_bytes,
            serves=None if row.serves is None else list(row.serves),
            degraded=row.degraded,
            active_count=tally.active,
            usage=Amounts.of(tally.held),
            last_heartbeat=row.last_heartbeat,
            address=row.address,
            note=row.note,
        )


class GatewayView(Shape):
    """A gateway incarnation, and how many agents it sees."""

    incarnation: str
    host: str
    started_at: datetime
    last_heartbeat: datetime
    is_fresh: bool
    agents: int

    @classmethod
    def of(cls, row: GatewayCount) -> Self:
        """From its row."""
        return cls(
            incarnation=row.incarnation,
            host=row.host,
            started_at=row.started_at,
            last_heartbeat=row.last_heartbeat,
            is_fresh=row.is_fresh,
            agents=row.agents,
        )


class StatusView(Shape):
    """The whole cluster at one moment."""

    at: datetime
    revision: int
    draining: bool
    global_max_agents: int
    global_active_count: int
    spawning_count: int
    warm_pool_count: int
    global_usage: Amounts
    global_resource_cap: CapView | None
    requests: Mapping[str, int]
    """Requests that are not over, by state."""
    backends: list[ScalerView]
    machines: list[MachineView]
    gateways: list[GatewayView]
    static_agents: Mapping[str, int]
    """Connected agents that no scaler made: idle, offered, busy, stopping."""
    held_back: bool = False
    """The database failed over: nothing is admitted or reclaimed until `kici-scaler resume`."""
    unwatched_seconds: float = 0.0
    """How long nobody has watched over agents, while every deadline stands still; 0 otherwise."""
    unwatched_why: str = ""

    @classmethod
    def of(cls, status: ClusterStatus) -> Self:
        """From what was read."""
        return cls(
            at=status.at,
            revision=status.revision_id,
            draining=status.draining,
            global_max_agents=status.cluster.global_max_agents,
            global_active_count=status.tally.active,
            spawning_count=status.tally.in_flight,
            warm_pool_count=status.tally.ready_warm,
            global_usage=Amounts.of(status.tally.held),
            global_resource_cap=CapView.of(status.cluster.global_resource_cap),
            requests=status.requests,
            backends=[ScalerView.of(each) for each in status.scalers],
            machines=[
                MachineView.of(row, status.on_machines[row.machine_id]) for row in status.machines
            ],
            gateways=[GatewayView.of(each) for each in status.gateways],
            static_agents=status.static_agents,
            held_back=status.held_back,
            unwatched_seconds=status.watch.unwatched_seconds,
            unwatched_why=status.watch.why,
        )


class CapacityRow(Shape):
    """What one scaler could still take. `total` counts its machines that are up."""

    name: str
    type: str
    label_sets: list[list[str]]
    label_set_mandatory_labels: list[list[str]]
    spawns_on_local_host: bool
    max_agents: int
    total: int
    active_count: int
    available: int
    """By counts alone; resources may allow less."""
    why_nothing: str

    @classmethod
    def of(cls, status: ScalerStatus, room: int) -> Self:
        """From what was read; `room` is what the cluster's own cap leaves."""
        view = ScalerView.of(status)
        total = status.most_agents
        free = 0 if status.restraint else max(0, min(room, total - view.active_count))
        return cls(
            name=view.name,
            type=view.type,
            label_sets=view.label_sets,
            label_set_mandatory_labels=view.label_set_mandatory_labels,
            spawns_on_local_host=view.spawns_on_local_host,
            max_agents=view.max_agents,
            total=total,
            active_count=view.active_count,
            available=free,
            why_nothing=view.why_nothing,
        )


class CapacityView(Shape):
    """What could still be taken, without retiring scalers."""

    at: datetime
    draining: bool
    available: int
    """What the cluster's own cap leaves."""
    scalers: list[CapacityRow]

    @classmethod
    def of(cls, status: ClusterStatus) -> Self:
        """From what was read."""
        room = max(0, status.cluster.global_max_agents - status.tally.active)
        room = 0 if status.draining or status.held_back else room
        rows = [CapacityRow.of(each, room) for each in status.scalers if not each.retiring]
        return cls(at=status.at, draining=status.draining, available=room, scalers=rows)
