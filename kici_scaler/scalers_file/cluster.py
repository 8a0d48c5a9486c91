"""Validated models to the domain's plain data, and to the document that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kici_scaler.domain.labels import declared_gate
from kici_scaler.domain.quantities import millis_of, parse_memory
from kici_scaler.domain.scalers import (
    NOTHING,
    UNCAPPED,
    Amount,
    Architecture,
    BackendType,
    Cap,
    Cluster,
    FleetMachine,
    LabelSet,
    MachinePool,
    OperatingSystem,
    Platform,
    Resources,
    Role,
    Scaler,
    WarmPool,
    WarmSchedule,
)
from kici_scaler.scalers_file.amounts import AmountEntry, CapEntry, ResourcesEntry
from kici_scaler.scalers_file.applies import LABEL_SET_KEYS, SCALER_KEYS, applies
from kici_scaler.scalers_file.entries import LabelSetEntry, PlatformEntry, WarmPoolEntry
from kici_scaler.scalers_file.firecracker import (
    NETWORK_OPTION,
    firecracker_network,
    network_of,
)
from kici_scaler.scalers_file.models import ScalerEntry, ScalersFile

_BACKEND_SCALER_KEYS = frozenset(SCALER_KEYS) - {
    "machinePool",
    "provisioningTargets",
    "claimTtlSeconds",
    "agentTokenTtlSeconds",
}
_SCALER_OPTIONS = _BACKEND_SCALER_KEYS | {NETWORK_OPTION}
_BACKEND_LABEL_SET_KEYS = frozenset(LABEL_SET_KEYS)


def effective_document(file: ScalersFile) -> dict[str, Any]:
    """The configuration as it counts: defaults filled in, plain forms, nothing that is ignored.

    Reading it again gives the same document.
    """
    document = file.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["firecracker"] = firecracker_network(file.firecracker)
    for scaler in document["scalers"]:
        type_ = scaler["type"]
        _drop(scaler, type_, SCALER_KEYS)
        for label_set in scaler["labelSets"]:
            _drop(label_set, type_, LABEL_SET_KEYS)
    return document


def to_cluster(file: ScalersFile) -> Cluster:
    """The domain's view of a validated file."""
    document = effective_document(file)
    defaults = file.defaults.resources if file.defaults else None
    return Cluster(
        scalers=tuple(
            _scaler(entry, {**written, **network_of(entry.type, document["firecracker"])})
            for entry, written in zip(file.scalers, document["scalers"], strict=True)
        ),
        global_max_agents=file.global_max_agents,
        global_resource_cap=_cap(file.global_resource_cap),
        machine_pools=tuple(MachinePool(pool.name, _cap(pool.cap)) for pool in file.machine_pools),
        default_resources=_resources(defaults),
        firecracker=_frozen(document["firecracker"]),
    )


def _drop(entry: dict[str, Any], type_: str, keys: Mapping[str, frozenset[BackendType]]) -> None:
    for key in [key for key in entry if not applies(key, type_, keys)]:
        del entry[key]


def _scaler(entry: ScalerEntry, written: Mapping[str, Any]) -> Scaler:
    platform = _platform(entry.platform)
    label_sets = zip(entry.label_sets, written["labelSets"], strict=True)
    return Scaler(
        name=entry.name,
        type=BackendType(entry.type),
        max_agents=entry.max_agents,
        max_concurrent_spawns=entry.max_concurrent_spawns,
        label_sets=tuple(
            _label_set(index, entry, label_set, platform, options)
            for index, (label_set, options) in enumerate(label_sets)
        ),
        resource_cap=_cap(entry.resource_cap),
        machine_pool=written.get("machinePool"),
        platform=platform,
        roles=frozenset(Role) if "all" in entry.roles else frozenset(map(Role, entry.roles)),
        orchestrator_url=entry.orchestrator_url,
        provisioning_targets=tuple(written.get("provisioningTargets", ())),
        claim_ttl_seconds=entry.claim_ttl_seconds,
        agent_token_ttl_seconds=entry.agent_token_ttl_seconds,
        options=_frozen({k: v for k, v in written.items() if k in _SCALER_OPTIONS}),
        machines=_machines(entry) if "machines" in written else (),
    )


def _machines(entry: ScalerEntry) -> tuple[FleetMachine, ...]:
    return tuple(
        FleetMachine(
            name=each.name or each.address,
            labels=frozenset(each.labels),
            max_agents=each.max_agents,
            capacity=_cap(each.capacity),
        )
        for each in entry.machines or ()
    )


def _label_set(
    index: int,
    scaler: ScalerEntry,
    entry: LabelSetEntry,
    platform: Platform | None,
    written: Mapping[str, Any],
) -> LabelSet:
    return LabelSet(
        index=index,
        labels=tuple(entry.labels),
        gate=declared_gate(entry.labels, scaler.mandatory_labels, platform),
        resources=_resources(entry.resources),
        warm_pool=_warm_pool(scaler.warm_pool),
        options=_frozen({k: v for k, v in written.items() if k in _BACKEND_LABEL_SET_KEYS}),
    )


def _platform(entry: PlatformEntry | None) -> Platform | None:
    if entry is None:
        return None
    return Platform(OperatingSystem(entry.os), Architecture(entry.arch))


def _warm_pool(entry: WarmPoolEntry | None) -> WarmPool | None:
    if entry is None or not entry.enabled:
        return None
    return WarmPool(
        size=entry.size,
        idle_timeout_seconds=entry.idle_timeout_seconds,
        schedules=tuple(
            WarmSchedule(each.cron, each.timezone, each.size) for each in entry.schedules
        ),
    )


def _resources(entry: ResourcesEntry | AmountEntry | None) -> Resources:
    if not isinstance(entry, ResourcesEntry):
        return Resources()
    return Resources(_amount(entry.requests), _amount(entry.limits))


def _amount(entry: AmountEntry | None) -> Amount:
    return NOTHING if entry is None else Amount(*_dimensions(entry.cpus, entry.memory))


def _cap(entry: CapEntry | None) -> Cap:
    return UNCAPPED if entry is None else Cap(*_dimensions(entry.max_cpu, entry.max_memory))


def _dimensions(cpus: float | None, memory: str | None) -> tuple[int | None, int | None]:
    return (
        None if cpus is None else millis_of(cpus),
        None if memory is None else parse_memory(memory),
    )


def _frozen(value: Any) -> Any:
    """Plain data that nobody can change: mapping views and tuples all the way down."""
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(each) for key, each in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
