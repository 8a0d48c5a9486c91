"""What the cluster is and holds at one moment: configuration, counts, machines, gateways.

Everything is read in one snapshot, so the numbers of one answer fit together. Nothing is
written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.domain.admission import Situation
from kici_scaler.domain.explain import Explanation, explain
from kici_scaler.domain.labels import Offer, offer
from kici_scaler.domain.machines import machines_for
from kici_scaler.domain.resources import Need
from kici_scaler.domain.routing import Wanted
from kici_scaler.domain.scalers import Cluster, Scaler
from kici_scaler.domain.spawn import ENDING, SpawnState
from kici_scaler.service import revisions, situations, watch
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.watch import Watch
from kici_scaler.store import census, surroundings
from kici_scaler.store.census import GatewayCount, SpawnCount
from kici_scaler.store.engine import snapshot
from kici_scaler.store.machines import MachineRow
from kici_scaler.store.scaler_states import ScalerStanding, ScalerStateRow

IN_FLIGHT = frozenset({SpawnState.RESERVED, SpawnState.SPAWNING, SpawnState.BOOTING})


@dataclass(frozen=True, slots=True)
class Tally:
    """Agents of one kind, and what they hold."""

    counts: tuple[SpawnCount, ...]

    @property
    def active(self) -> int:
        """All that count against the caps, ending ones too."""
        return sum(each.count for each in self.counts)

    @property
    def in_flight(self) -> int:
        """Reserved and not registered yet."""
        return self.within(IN_FLIGHT)

    @property
    def ending(self) -> int:
        """Being torn down, or set aside because that could not be confirmed."""
        return self.within(ENDING)

    @property
    def ready_warm(self) -> int:
        """Connected agents of the warm pool that wait for a job."""
        return sum(each.count for each in self.counts if each.is_ready_warm)

    @property
    def held(self) -> Need:
        """What they hold, summed."""
        return Need(
            sum(each.cpu_millis for each in self.counts),
            sum(each.memory_bytes for each in self.counts),
        )

    def within(self, states: Collection[SpawnState]) -> int:
        """How many are in these states."""
        return sum(each.count for each in self.counts if each.state in states)

    def by_state(self) -> dict[SpawnState, int]:
        """How many are in each state, without the empty ones."""
        return {state: count for state in SpawnState if (count := self.within((state,))) > 0}


@dataclass(frozen=True, slots=True)
class ScalerStatus:
    """One scaler: configured, or retiring until its last agent is gone.

    `offers` has one entry a label set (of the kind of machine it has, where that matters);
    `machines_up` counts those that take new agents of it, None for `event`; `most_agents` is what
    its counts allow on them together.
    """

    scaler: Scaler
    retiring: bool
    state: ScalerStateRow | None
    restraint: str
    """Why it takes nothing at the moment; empty when it does."""
    offers: tuple[Offer, ...]
    machines_up: int | None
    most_agents: int
    tally: Tally
    degraded: Mapping[str, str] = field(default_factory=dict)
    """Machines that cannot run it at the moment, and why."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The whole cluster at one moment."""

    at: datetime
    revision_id: int
    cluster: Cluster
    draining: bool
    scalers: tuple[ScalerStatus, ...]
    tally: Tally
    machines: tuple[MachineRow, ...]
    on_machines: Mapping[str, Tally]
    requests: Mapping[str, int]
    gateways: tuple[GatewayCount, ...]
    static_agents: Mapping[str, int] = field(default_factory=dict)
    """Connected agents that no scaler made, by what they do."""
    held_back: bool = False
    """The database failed over: nothing is admitted or reclaimed until a person says so."""
    watch: Watch = field(default_factory=lambda: Watch(0.0, ""))
    """Whether anybody watches over agents."""


def read(runtime: Runtime) -> ClusterStatus:
    """The cluster as it is now.

    Raises:
        DatabaseUnreachable: it cannot be told.
    """
    with snapshot(runtime.engine) as connection:
        seen = surroundings.look(connection)
        windows = seen.live.windows
        revision = revisions.active_of(connection, seen)
        situation = situations.of(connection, revision, seen)
        counts = census.spawns(connection)
        return ClusterStatus(
            at=situation.now,
            revision_id=revision.id,
            cluster=revision.cluster,
            draining=situation.draining,
            scalers=_scalers(connection, revision.cluster, situation, seen.states, counts),
            tally=Tally(tuple(counts)),
            machines=tuple(seen.machines),
            on_machines={
                row.machine_id: _tally(counts, machine_id=row.machine_id) for row in seen.machines
            },
            requests=census.requests(connection),
            gateways=tuple(
                census.gateways(connection, fresh_seconds=windows.gateway_stale_seconds)
            ),
            static_agents=census.static_agents(connection),
            held_back=seen.live.held_back,
            watch=watch.look(connection, windows),
        )


def can_serve(runtime: Runtime, wanted: Wanted) -> Explanation:
    """Whether any configured scaler can ever serve such a job, and why the others do not.

    Caps and backoff say "not now" and are not looked at; a scaler that is paused or that
    left the configuration does not count.
    """
    with snapshot(runtime.engine) as connection:
        return explained(connection, wanted)


def explained(connection: Connection, wanted: Wanted) -> Explanation:
    """The same within a snapshot."""
    seen = surroundings.look(connection)
    situation = situations.of(connection, revisions.active_of(connection, seen), seen)

    def refuse(scaler: Scaler) -> str | None:
        restraint = situation.restraints.get(scaler.name)
        return restraint.reason if restraint is not None and restraint.unroutable else None

    return explain(situation.table, wanted, refuse)


def _scalers(
    connection: Connection,
    cluster: Cluster,
    situation: Situation,
    states: Mapping[str, ScalerStateRow],
    counts: Sequence[SpawnCount],
) -> tuple[ScalerStatus, ...]:
    """Configured scalers in the order of the file, then those that retire."""
    known = [(scaler, False) for scaler in cluster.scalers]
    for name, row in sorted(states.items()):
        if row.standing is ScalerStanding.RETIRING and row.revision_id is not None:
            scaler = revisions.by_id(connection, row.revision_id).cluster.scaler(name)
            known += [] if scaler is None else [(scaler, True)]
    return tuple(
        ScalerStatus(
            scaler=scaler,
            retiring=leaves,
            state=states.get(scaler.name),
            restraint=_restraint(situation, scaler),
            offers=_offers(situation, scaler),
            machines_up=_machines_up(situation, scaler),
            most_agents=_most_agents(situation, scaler),
            tally=_tally(counts, scaler=scaler.name),
            degraded={
                view.id: view.degraded[scaler.name]
                for view in situation.machines
                if view.is_for(scaler) and scaler.name in view.degraded
            },
        )
        for scaler, leaves in known
    )


def _restraint(situation: Situation, scaler: Scaler) -> str:
    """Why nothing starts: what holds the scaler back, else what keeps every machine from it."""
    found = situation.restraints.get(scaler.name)
    if found is not None or not scaler.type.is_local:
        return "" if found is None else found.reason
    able, why = machines_for(scaler, (), situation.machines)
    return "" if able else why


def _offers(situation: Situation, scaler: Scaler) -> tuple[Offer, ...]:
    facts = next(
        (
            view.facts_for(scaler)
            for view in situation.machines
            if view.facts is not None and view.is_for(scaler)
        ),
        None,
    )
    return tuple(offer(scaler, label_set, facts) for label_set in scaler.label_sets)


def _most_agents(situation: Situation, scaler: Scaler) -> int:
    if not scaler.type.is_local:
        return scaler.max_agents
    able = machines_for(scaler, (), situation.machines)[0]
    return sum(scaler.most_agents_on(each) for each in able)


def _machines_up(situation: Situation, scaler: Scaler) -> int | None:
    if not scaler.type.is_local:
        return None
    return len(machines_for(scaler, (), situation.machines)[0])


def _tally(
    counts: Sequence[SpawnCount], *, scaler: str | None = None, machine_id: str | None = None
) -> Tally:
    return Tally(
        tuple(
            each
            for each in counts
            if (scaler is None or each.scaler == scaler)
            and (machine_id is None or each.machine_id == machine_id)
        )
    )
