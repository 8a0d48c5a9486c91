"""Warm pools: which agents belong to which pool, and how many of them count.

An agent was started for a pool and belongs to it as long as it never had a job. What it
was started from stays on its row, so after a reload it is told apart: up to date, or
outdated because its label set is another by now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kici_scaler.domain.labels import offer
from kici_scaler.domain.limits import Held
from kici_scaler.domain.prespawned import Prespawned
from kici_scaler.domain.resources import resolve
from kici_scaler.domain.routing import Route
from kici_scaler.domain.scalers import BackendType, Cluster, LabelSet, Resources, Scaler
from kici_scaler.domain.spawn import ENDING, SpawnState

IN_FLIGHT = frozenset({SpawnState.RESERVED, SpawnState.SPAWNING, SpawnState.BOOTING})
_FROM_THE_SCALER = ("kernelPath", "vcpuCount", "memSizeMib")
"""Options of a microVM's label set that its scaler gives when the label set does not."""


class PoolKey(NamedTuple):
    """What identifies a pool through reloads: its scaler and the labels as one text."""

    scaler: str
    label_set: str


@dataclass(frozen=True, slots=True)
class Pool:
    """The warm pool of one label set, as it shall be at this moment."""

    key: PoolKey
    scaler: Scaler
    label_set: LabelSet
    target: int
    digest: str
    """What `label_set_digest` says of an agent that would be started now."""
    route: Route | None = None
    """Where its agents are placed and what size they have; None while it is inert."""
    inert: str = ""
    """Why it keeps no agents at all, in words for an operator; empty when it does."""
    closed: str = ""
    """Why it starts none at the moment; empty when it may."""

    @property
    def idle_timeout_seconds(self) -> float:
        """How long agents beyond the target stay."""
        pool = self.label_set.warm_pool
        return 0.0 if pool is None else pool.idle_timeout_seconds

    @property
    def query(self) -> frozenset[str]:
        """What an agent that no scaler made must offer to count as this pool's."""
        return offer(self.scaler, self.label_set).warm_query


@dataclass(frozen=True, slots=True)
class Member:
    """A live agent that was started for a pool and never had a job."""

    agent_id: str
    state: SpawnState
    like: Prespawned
    label_set_index: int
    digest: str | None
    is_present: bool
    """Whether a live gateway sees it."""
    is_leaving: bool
    """Whether its machine gives nothing away any more."""
    idle_seconds: float
    held: Held


def label_set_digest(cluster: Cluster, scaler: Scaler, label_set: LabelSet) -> str:
    """A fingerprint of everything an agent of this label set is made from.

    Labels, gate and roles, the shape it gets without a job, and what its backend reads of
    the label set (image, program, environment ...).
    """
    options = dict(label_set.options)
    if scaler.type is BackendType.FIRECRACKER:
        inherited = {key: scaler.options.get(key) for key in _FROM_THE_SCALER}
        options = {**inherited, **options}
    shape = resolve(Resources(), label_set, cluster.default_resources)
    offered = offer(scaler, label_set)
    made_from = {
        "labels": sorted(offered.routable),
        "gate": sorted(offered.gate),
        "options": options,
        "shape": [
            shape.requests.cpu_millis,
            shape.requests.memory_bytes,
            shape.limits.cpu_millis,
            shape.limits.memory_bytes,
        ],
    }
    text = json.dumps(made_from, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Roster:
    """A pool and the agents that count toward it; ready ones oldest first."""

    pool: Pool
    ready: list[Member] = field(default_factory=list)
    absent: list[Member] = field(default_factory=list)
    leaving: list[Member] = field(default_factory=list)
    in_flight: list[Member] = field(default_factory=list)
    ending: list[Member] = field(default_factory=list)
    static: int = 0
    """Connected agents that no scaler made and that a job of this pool could use."""

    @property
    def available(self) -> int:
        """Agents that could be given a job now."""
        return len(self.ready) + self.static

    @property
    def deficit(self) -> int:
        """How many are missing, when everyone is counted who is there, comes or goes."""
        others = (self.absent, self.leaving, self.in_flight, self.ending)
        return max(0, self.pool.target - self.available - sum(map(len, others)))

    @property
    def surplus(self) -> int:
        """How many available agents there are beyond the target."""
        return max(0, self.available - self.pool.target)

    @property
    def outdated(self) -> list[Member]:
        """The ready agents that are not what would be started now."""
        return [each for each in self.ready if self.is_outdated(each)]

    def is_outdated(self, member: Member) -> bool:
        """Whether an agent was made from something else than the label set is now."""
        return member.digest != self.pool.digest

    def add(self, member: Member) -> None:
        """Count an agent where its state says."""
        if member.state in ENDING:
            self.ending.append(member)
        elif member.state in IN_FLIGHT:
            self.in_flight.append(member)
        elif member.is_leaving:
            self.leaving.append(member)
        else:
            (self.ready if member.is_present else self.absent).append(member)


@dataclass(frozen=True, slots=True)
class Muster:
    """Every pool with its agents, and live agents whose pool is there no more."""

    rosters: Sequence[Roster]
    orphans: Sequence[Member]


def muster(
    pools: Sequence[Pool], members: Iterable[Member], static: Iterable[Prespawned] = ()
) -> Muster:
    """Each agent to its pool, by its labels, or by its place when those were changed."""
    rosters = {pool.key: Roster(pool) for pool in pools}
    by_place = {(pool.scaler.name, pool.label_set.index): pool.key for pool in pools}
    orphans = []
    for member in sorted(members, key=lambda each: (-each.idle_seconds, each.agent_id)):
        key = _pool_of(member, rosters, by_place)
        if key is not None:
            rosters[key].add(member)
        elif member.state not in ENDING:
            orphans.append(member)
    found = list(static)
    for roster in rosters.values():
        query = roster.pool.query
        roster.static = sum(1 for each in found if query <= each.labels and each.gate <= query)
    return Muster(tuple(rosters.values()), tuple(orphans))


def _pool_of(
    member: Member, pools: Mapping[PoolKey, Roster], by_place: Mapping[tuple[str, int], PoolKey]
) -> PoolKey | None:
    key = PoolKey(member.like.scaler, member.like.label_set)
    if key in pools:
        return key
    return by_place.get((member.like.scaler, member.label_set_index))


def _plain(value: object) -> object:
    """Frozen mappings as JSON has them."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no plain option")
