"""Warm pools as rows, configuration and clock have them: the facts that decisions are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.domain.admission import Situation
from kici_scaler.domain.labels import MachineFacts, normalise, offer
from kici_scaler.domain.limits import Held
from kici_scaler.domain.prespawned import Prespawned, Ready
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.resources import Need, Shape, resolve
from kici_scaler.domain.routing import Route
from kici_scaler.domain.scalers import Amount, Cluster, LabelSet, Resources, Scaler
from kici_scaler.domain.warm import Member, Muster, Pool, PoolKey, label_set_digest, muster
from kici_scaler.domain.warm_obstacles import largest_size, warm_obstacle
from kici_scaler.service.remembered import Remembered
from kici_scaler.service.revisions import Revision
from kici_scaler.service.warm_targets import pool_target
from kici_scaler.store import warm
from kici_scaler.store.scaler_states import ScalerStanding, ScalerStateRow
from kici_scaler.store.warm import MemberRow, ReadyRow

JOB_THAT_SAYS_NOTHING = Resources()
HOST_PREFIX = "kici:host:"
"""Labels that begin so name the host of one agent; each says its own."""
_MOST_REMEMBERED = 16
_digests: Remembered[int, tuple[Cluster, Mapping[PoolKey, str]]] = Remembered(_MOST_REMEMBERED)


def keeps_any(cluster: Cluster) -> bool:
    """Whether any label set has a warm pool; without one nobody looks for ready agents."""
    return any(each.warm_pool for scaler in cluster.scalers for each in scaler.label_sets)


def key_of(scaler: Scaler, label_set: LabelSet) -> PoolKey:
    """What identifies the pool of a label set."""
    return PoolKey(scaler.name, normalise(label_set.labels))


def shape_of(cluster: Cluster, label_set: LabelSet) -> Shape:
    """The size of an agent that is started before its job."""
    return resolve(JOB_THAT_SAYS_NOTHING, label_set, cluster.default_resources)


def digests(revision: Revision) -> Mapping[PoolKey, str]:
    """What agents of every label set would be made from now; kept between calls."""
    cluster = revision.cluster
    known = _digests.known(revision.id)
    if known is not None and known[0] is cluster:
        return known[1]
    found = {
        key_of(scaler, label_set): label_set_digest(cluster, scaler, label_set)
        for scaler in cluster.scalers
        for label_set in reversed(scaler.label_sets)
    }
    return _digests.keep(revision.id, (cluster, found))[1]


def targets(cluster: Cluster, now: datetime) -> dict[PoolKey, int]:
    """The size every pool shall have at that moment, by its schedules; inert ones included."""
    return {
        key_of(scaler, label_set): pool_target(label_set.warm_pool, now)
        for scaler, label_set in _pooled(cluster)
    }


def pools(
    revision: Revision, situation: Situation, states: Mapping[str, ScalerStateRow]
) -> list[Pool]:
    """Every warm pool of the configuration, as it shall be at this moment."""
    return shaped(revision, situation, _closed(states, situation))


def shaped(revision: Revision, situation: Situation, closed: Mapping[str, str]) -> list[Pool]:
    """The same from plain data; `closed` says why scalers start nothing ahead of demand."""
    cluster = revision.cluster
    wanted, made_from = targets(cluster, situation.now), digests(revision)
    found = []
    for scaler, label_set in _pooled(cluster):
        key = key_of(scaler, label_set)
        route = _route(situation, scaler, label_set)
        inert = route if isinstance(route, str) else ""
        found.append(
            Pool(
                key=key,
                scaler=scaler,
                label_set=label_set,
                target=0 if inert or situation.draining else wanted[key],
                digest=made_from[key],
                route=None if isinstance(route, str) else route,
                inert=inert,
                closed=closed.get(scaler.name, ""),
            )
        )
    return found


def assembled(
    connection: Connection, revision: Revision, situation: Situation, found: Sequence[Pool]
) -> Muster:
    """Those pools with everybody who was started for one."""
    kinds = _Kinds(revision, situation)
    members = [_member(row, kinds) for row in warm.members(connection)]
    static = [
        Prespawned("", "", frozenset(labels), frozenset(gate), None)
        for labels, gate in warm.static_agents(connection)
    ]
    return muster(found, members, static)


def ready(
    connection: Connection, revision: Revision, situation: Situation, waiting: Sequence[Waiting]
) -> list[Ready]:
    """The agents that could be given a job now, as many of each kind as these could use."""
    if not keeps_any(revision.cluster):
        return []
    by_host = any(
        label.startswith(HOST_PREFIX) for each in waiting for label in each.labels | each.exclude
    )
    rows = warm.ready(connection, most=len(waiting), by_host=by_host)
    return as_ready(rows, revision, situation)


def as_ready(rows: Iterable[ReadyRow], revision: Revision, situation: Situation) -> list[Ready]:
    """Those agents, as whom they may serve."""
    kinds = _Kinds(revision, situation)
    return [Ready(kinds.of(row), row.agents) for row in rows]


def like(row: MemberRow, revision: Revision, situation: Situation) -> Prespawned:
    """What decides whom this agent serves."""
    return _Kinds(revision, situation).of(row)


class _Kinds:
    """What an agent may be asked for.

    An up-to-date one offers what its label set routes by; one of an earlier configuration
    only what it registered with.
    """

    def __init__(self, revision: Revision, situation: Situation) -> None:
        self._situation = situation
        self._digests = digests(revision)
        self._offered: dict[tuple[PoolKey, str | None], frozenset[str]] = {}
        self._alike: dict[tuple[object, ...], Prespawned] = {}
        self._label_sets = {
            key_of(scaler, label_set): (scaler, label_set)
            for scaler in revision.cluster.scalers
            for label_set in reversed(scaler.label_sets)
        }

    def of(self, row: MemberRow | ReadyRow) -> Prespawned:
        """Agents that are alike share it: a pool of hundreds is a few kinds."""
        alike = (
            row.scaler, row.label_set, row.label_set_digest, row.machine_id, row.labels, row.gate,
            row.cpu_millis, row.memory_bytes, row.limit_cpu_millis, row.limit_memory_bytes,
        )  # fmt: skip
        found = self._alike.get(alike)
        if found is None:
            found = self._alike[alike] = self._of(row)
        return found

    def _of(self, row: MemberRow | ReadyRow) -> Prespawned:
        key = PoolKey(row.scaler, normalise(row.label_set))
        labels = frozenset(row.labels)
        if row.label_set_digest is not None and self._digests.get(key) == row.label_set_digest:
            labels |= self._routable(key, row.machine_id)
        return Prespawned(key.scaler, key.label_set, labels, frozenset(row.gate), _shape(row))

    def _routable(self, key: PoolKey, machine_id: str | None) -> frozenset[str]:
        found = self._offered.get((key, machine_id))
        if found is None:
            scaler, label_set = self._label_sets[key]
            facts = self._situation.facts_of(scaler, machine_id)
            found = offer(scaler, label_set, facts).routable
            self._offered[key, machine_id] = found
        return found


def _shape(row: MemberRow | ReadyRow) -> Shape:
    return Shape(
        Need(row.cpu_millis, row.memory_bytes),
        Amount(row.limit_cpu_millis, row.limit_memory_bytes),
    )


def _member(row: MemberRow, kinds: _Kinds) -> Member:
    return Member(
        agent_id=row.agent_id,
        state=row.state,
        like=kinds.of(row),
        label_set_index=row.label_set_index,
        digest=row.label_set_digest,
        is_present=row.is_present,
        is_leaving=row.machine_drains,
        idle_seconds=row.idle_seconds,
        held=Held(row.scaler, row.machine_id, row.pool, 1, row.cpu_millis, row.memory_bytes),
    )


def _pooled(cluster: Cluster) -> Iterator[tuple[Scaler, LabelSet]]:
    """Label sets with a warm pool; of two with the same labels every job gets the first."""
    seen: set[PoolKey] = set()
    for scaler in cluster.scalers:
        for label_set in scaler.label_sets:
            key = key_of(scaler, label_set)
            if label_set.warm_pool is not None and key not in seen:
                yield scaler, label_set
            seen.add(key)


def _route(situation: Situation, scaler: Scaler, label_set: LabelSet) -> Route | str:
    """Where the pool's agents go and what size they have, or why it stays inert."""
    cluster = situation.table.cluster
    kinds = {
        each.facts
        for each in situation.table.candidates
        if (each.scaler.name, each.label_set.index) == (scaler.name, label_set.index)
    }
    obstacles = {kind: warm_obstacle(cluster, scaler, label_set, kind) for kind in kinds}
    able = [kind for kind, obstacle in obstacles.items() if obstacle is None]
    if not able:
        return next(filter(None, obstacles.values()), "its label set is not offered")
    facts = sorted(filter(None, able), key=_as_text)
    return Route(scaler, label_set, tuple(facts), shape_of(cluster, label_set))


def _as_text(facts: MachineFacts) -> tuple[str, str]:
    return facts.os, facts.arch


def _closed(states: Mapping[str, ScalerStateRow], situation: Situation) -> dict[str, str]:
    """Why scalers start nothing ahead of demand at the moment."""
    closed = {
        name: f"scaler `{name}` is degraded: {row.reason}"
        for name, row in states.items()
        if row.standing is ScalerStanding.DEGRADED
    }
    closed |= {name: each.reason for name, each in situation.restraints.items()}
    if situation.draining:
        closed |= dict.fromkeys(_names(situation), "the cluster is draining")
    return closed


def _names(situation: Situation) -> Iterable[str]:
    return (scaler.name for scaler in situation.table.cluster.scalers)


def shrunk(before: Mapping[PoolKey, int], after: Mapping[PoolKey, int]) -> Collection[PoolKey]:
    """The pools that are kept and shall be smaller than before."""
    return {key for key, size in after.items() if size < before.get(key, 0)}


def sized(label_set: LabelSet) -> bool:
    """Whether the label set is ever told to keep agents."""
    return largest_size(label_set.warm_pool) > 0
