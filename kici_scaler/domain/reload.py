"""What a reload would do: which scalers come, stay, change, go, or may not change so."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kici_scaler.domain.labels import normalise
from kici_scaler.domain.quantities import format_cpus, format_memory
from kici_scaler.domain.scalers import (
    Amount,
    BackendType,
    Cap,
    Cluster,
    LabelSet,
    Resources,
    Scaler,
    WarmPool,
)

Settings = dict[str, object]
"""Plain values by the path they have in the file."""
LONGEST_SUMMARY = 300


class Bucket(StrEnum):
    """What becomes of one scaler."""

    ADDED = "added"
    KEPT = "kept"
    CHANGED = "changed"
    """It stays; `changes` lists what is different for agents that start from then on."""
    REMOVED = "removed"
    """It leaves the file: out of routing at once, gone when its last agent is."""
    RESURRECTED = "resurrected"
    """It was retiring and is back, with its live agents."""
    TYPE_CHANGED = "type-changed"
    """Its backend type is another: such a reload is rejected."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs; None where it is not set."""

    field: str
    old: object
    new: object


@dataclass(frozen=True, slots=True)
class ScalerPlan:
    """What becomes of one scaler, and every field of it that differs."""

    name: str
    bucket: Bucket
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """The whole plan; `cluster` holds what differs outside of scalers."""

    scalers: tuple[ScalerPlan, ...]
    cluster: tuple[Change, ...] = ()

    def named(self, bucket: Bucket) -> tuple[str, ...]:
        """The scalers of one bucket, in the order of the file."""
        return tuple(each.name for each in self.scalers if each.bucket is bucket)

    @property
    def rejections(self) -> tuple[str, ...]:
        """Why the reload is rejected, a sentence each; empty when it is accepted."""
        return tuple(
            f"scaler {each.name!r}: its type cannot change from {each.changes[0].old} to "
            f"{each.changes[0].new}; give the new one a new name"
            for each in self.scalers
            if each.bucket is Bucket.TYPE_CHANGED
        )

    @property
    def changes_nothing(self) -> bool:
        """Whether old and new are the same to every decision."""
        return not self.cluster and all(each.bucket is Bucket.KEPT for each in self.scalers)

    @property
    def redecided(self) -> tuple[str, ...]:
        """Scalers that stay and whose next agents start, or are counted, differently."""
        return tuple(
            each.name
            for each in self.scalers
            if each.bucket is Bucket.CHANGED or (self.cluster and each.bucket is Bucket.KEPT)
        )

    @property
    def summary(self) -> str:
        """What changes in one line: `+new, -gone, ~s (maxAgents), globalMaxAgents`."""
        changed = [*filter(None, map(_summary, self.scalers)), *(c.field for c in self.cluster)]
        line = ", ".join(changed) or "nothing"
        return line if len(line) <= LONGEST_SUMMARY else f"{line[: LONGEST_SUMMARY - 1]}…"


def _summary(planned: ScalerPlan) -> str:
    fields = ", ".join(change.field for change in planned.changes)
    match planned.bucket:
        case Bucket.KEPT:
            return ""
        case Bucket.ADDED:
            return f"+{planned.name}"
        case Bucket.RESURRECTED:
            return f"+{planned.name} (back)"
        case Bucket.REMOVED:
            return f"-{planned.name}"
    return f"~{planned.name} ({fields})"


def plan_reload(old: Cluster, new: Cluster, retiring: Collection[str] = ()) -> ReloadPlan:
    """What changes from one configuration to another.

    Args:
        retiring: names that are in neither but still have agents, or that are on their way out.
    """
    before = {scaler.name: scaler for scaler in old.scalers}
    after = {scaler.name: scaler for scaler in new.scalers}
    planned = [_plan(before.get(each.name), each, retiring) for each in new.scalers]
    planned += [ScalerPlan(name, Bucket.REMOVED) for name in before if name not in after]
    return ReloadPlan(tuple(planned), tuple(_cluster_changes(old, new)))


def _plan(old: Scaler | None, new: Scaler, retiring: Collection[str]) -> ScalerPlan:
    if old is None:
        bucket = Bucket.RESURRECTED if new.name in retiring else Bucket.ADDED
        return ScalerPlan(new.name, bucket)
    if old.type is not new.type:
        change = Change("type", old.type.value, new.type.value)
        return ScalerPlan(new.name, Bucket.TYPE_CHANGED, (change,))
    changes = (*_differences(_scaler(old), _scaler(new)), *_label_set_changes(old, new))
    if new.name in retiring:
        return ScalerPlan(new.name, Bucket.RESURRECTED, changes)
    return ScalerPlan(new.name, Bucket.CHANGED if changes else Bucket.KEPT, changes)


def _cluster_changes(old: Cluster, new: Cluster) -> Iterator[Change]:
    yield from _differences(_globals(old), _globals(new))
    stay = {each.name for each in old.scalers} & {each.name for each in new.scalers}
    orders = [tuple(s.name for s in each.scalers if s.name in stay) for each in (old, new)]
    if orders[0] != orders[1]:
        yield Change("order of scalers", *orders)


def _label_set_changes(old: Scaler, new: Scaler) -> Iterator[Change]:
    """Label sets are the same when their labels are, wherever they stand."""
    before, after = _by_labels(old), _by_labels(new)
    if list(before) != list(after):
        yield Change("labelSets", tuple(before), tuple(after))
    for key in (key for key in before if key in after):
        for change in _differences(_label_set(before[key]), _label_set(after[key])):
            yield Change(f"labelSets[{key}].{change.field}", change.old, change.new)


def _by_labels(scaler: Scaler) -> dict[str, LabelSet]:
    found: dict[str, LabelSet] = {}
    for label_set in scaler.label_sets:
        key = normalise(label_set.labels)
        found[f"{key} ({label_set.index})" if key in found else key] = label_set
    return found


def _differences(old: Settings, new: Settings) -> Iterator[Change]:
    for field in dict.fromkeys((*old, *new)):
        if old.get(field) != new.get(field):
            yield Change(field, old.get(field), new.get(field))


def _globals(cluster: Cluster) -> Settings:
    pools = {f"machinePools[{each.name}]": each.cap for each in cluster.machine_pools}
    return {
        "globalMaxAgents": cluster.global_max_agents,
        **_cap("globalResourceCap", cluster.global_resource_cap),
        **_resources("defaults.resources", cluster.default_resources),
        "machinePools": tuple(sorted(pool.name for pool in cluster.machine_pools)) or None,
        **{k: v for name, cap in pools.items() for k, v in _cap(f"{name}.cap", cap).items()},
        **_options("firecracker.", cluster.firecracker),
    }


def _scaler(scaler: Scaler) -> Settings:
    platform = scaler.platform
    pool = scaler.label_sets[0].warm_pool if scaler.label_sets else None
    event: Settings = {
        "provisioningTargets": scaler.provisioning_targets,
        "claimTtlSeconds": scaler.claim_ttl_seconds,
        "agentTokenTtlSeconds": scaler.agent_token_ttl_seconds,
    }
    return {
        "maxAgents": scaler.max_agents,
        "maxConcurrentSpawns": scaler.max_concurrent_spawns,
        **_cap("resourceCap", scaler.resource_cap),
        "machinePool": scaler.machine_pool,
        "platform": platform and f"{platform.os.value}/{platform.arch.value}",
        "roles": tuple(sorted(scaler.roles)),
        "orchestratorUrl": scaler.orchestrator_url,
        **_warm_pool(pool),
        **(event if scaler.type is BackendType.EVENT else {}),
        **_options("", scaler.options),
    }


def _label_set(label_set: LabelSet) -> Settings:
    return {
        "labels as written": tuple(label_set.labels),
        "gate": tuple(sorted(label_set.gate)),
        **_resources("resources", label_set.resources),
        **_options("", label_set.options),
    }


def _warm_pool(pool: WarmPool | None) -> Settings:
    if pool is None:
        return {}
    return {
        "warmPool.size": pool.size,
        "warmPool.idleTimeoutSeconds": pool.idle_timeout_seconds,
        "warmPool.schedules": tuple(f"{s.cron} {s.timezone}: {s.size}" for s in pool.schedules)
        or None,
    }


def _resources(place: str, resources: Resources) -> Settings:
    return {
        **_amount(f"{place}.requests", resources.requests),
        **_amount(f"{place}.limits", resources.limits),
    }


def _amount(place: str, amount: Amount) -> Settings:
    return _dimensions(f"{place}.cpus", f"{place}.memory", amount)


def _cap(place: str, cap: Cap) -> Settings:
    return _dimensions(f"{place}.maxCpu", f"{place}.maxMemory", cap)


def _dimensions(cpus: str, memory: str, amount: Amount | Cap) -> Settings:
    millis, bytes_ = amount.cpu_millis, amount.memory_bytes
    return {
        cpus: None if millis is None else format_cpus(millis),
        memory: None if bytes_ is None else format_memory(bytes_),
    }


def _options(place: str, options: Mapping[str, object]) -> Settings:
    """Nested mappings become paths; everything else is compared as it stands."""
    found: Settings = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            found |= _options(f"{place}{key}.", value)
        else:
            found[f"{place}{key}"] = value
    return found
