"""How much an agent is given: mirroring, the cascade, caps, and equality of shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kici_scaler.domain.quantities import (
    BadQuantity,
    format_cpus,
    format_memory,
    parse_cpus,
    parse_memory,
)
from kici_scaler.domain.scalers import (
    NOTHING,
    Amount,
    Cap,
    Cluster,
    LabelSet,
    Resources,
    Scaler,
)


@dataclass(frozen=True, slots=True)
class Need:
    """What a reservation counts: thousandths of a CPU and bytes, 0 where nothing is asked."""

    cpu_millis: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """The resolved size of one agent: what it reserves and what it is held to.

    A limit of None is no limit on that dimension.
    """

    requests: Need = Need()
    limits: Amount = NOTHING


class BadResources(ValueError):
    """The resources of a job cannot be used; the message says what to write instead."""


def parse_resources(value: object) -> Resources:
    """Resources as a job declares them: flat `{cpus, memory}` or `{requests, limits}`.

    Flat values count for both sides. CPUs are numbers, memory is a text with a unit.

    Raises:
        BadResources: unknown or mixed keys, a value that is no amount, or a request above
            its own limit.
    """
    if value is None:
        return Resources()
    if not isinstance(value, Mapping):
        raise BadResources("resources: write {cpus, memory} or {requests, limits}")
    if value.keys() & {"requests", "limits"}:
        _refuse_others(value, {"requests", "limits"}, "resources")
        resources = Resources(
            _parse_amount(value.get("requests"), "resources.requests"),
            _parse_amount(value.get("limits"), "resources.limits"),
        )
    else:
        both = _parse_amount(value, "resources")
        resources = Resources(both, both)
    for problem in above_own_limit(resources):
        raise BadResources(f"resources: {problem}")
    return resources


def above_own_limit(resources: Resources) -> tuple[str, ...]:
    """What is requested beyond its own limit, a sentence a dimension."""
    requests, limits = resources.requests, resources.limits
    found = []
    if _exceeds(requests.cpu_millis, limits.cpu_millis):
        found.append("requests.cpus is above limits.cpus; raise the limit or ask for less")
    if _exceeds(requests.memory_bytes, limits.memory_bytes):
        found.append("requests.memory is above limits.memory; raise the limit or ask for less")
    return tuple(found)


def mirrored(resources: Resources) -> Resources:
    """Both sides, when only one was declared; a declared side is never completed."""
    if not resources.requests.is_declared:
        return Resources(resources.limits, resources.limits)
    if not resources.limits.is_declared:
        return Resources(resources.requests, resources.requests)
    return resources


def resolve(job: Resources, label_set: LabelSet, defaults: Resources) -> Shape:
    """The shape an agent for this job gets: each field from the job, else the label set,
    else the file's defaults, else nothing. Each source is mirrored before that."""
    first, second, third = mirrored(job), mirrored(label_set.resources), mirrored(defaults)
    requests = _cascade(first.requests, second.requests, third.requests)
    limits = _cascade(first.limits, second.limits, third.limits)
    return Shape(
        Need(requests.cpu_millis or 0, requests.memory_bytes or 0),
        Amount(limits.cpu_millis or None, limits.memory_bytes or None),
    )


def same_shape(job: Resources, warm: Shape | None) -> bool:
    """Whether a warm agent of that shape is exactly what the job declares, on both sides.

    A field the job leaves open fits anything; a shape that is not known fits nothing.
    """
    if warm is None:
        return False
    wanted = mirrored(job)
    reserved = Amount(warm.requests.cpu_millis, warm.requests.memory_bytes)
    return _equal_where_declared(wanted.requests, reserved) and _equal_where_declared(
        wanted.limits, warm.limits
    )


def beyond_cap(need: Need, cap: Cap, whose: str) -> str | None:
    """How one need alone exceeds a cap (`8 CPUs are above the scaler's cap of 4`), or None."""
    if cap.cpu_millis is not None and need.cpu_millis > cap.cpu_millis:
        asked, most = format_cpus(need.cpu_millis), format_cpus(cap.cpu_millis)
        return f"{asked} CPUs are above {whose} cap of {most}"
    if cap.memory_bytes is not None and need.memory_bytes > cap.memory_bytes:
        asked, most = format_memory(need.memory_bytes), format_memory(cap.memory_bytes)
        return f"{asked} of memory is above {whose} cap of {most}"
    return None


def never_fits(need: Need, scaler: Scaler, cluster: Cluster) -> str | None:
    """Why no amount of waiting lets this need start on the scaler, or None when it can."""
    pool = cluster.pool(scaler.machine_pool) if scaler.machine_pool else None
    caps = [(scaler.resource_cap, "the scaler's"), (cluster.global_resource_cap, "the global")]
    if pool is not None and scaler.type.is_local:
        caps.append((pool.cap, f"machine pool {pool.name!r}'s"))
    return next((found for cap, whose in caps if (found := beyond_cap(need, cap, whose))), None)


def _refuse_others(value: Mapping[object, object], known: set[str], place: str) -> None:
    for key in value:
        if key not in known:
            raise BadResources(
                f"{place}: unknown key {str(key)[:40]!r}; known are {', '.join(sorted(known))}"
            )


def _parse_amount(value: object, place: str) -> Amount:
    if value is None:
        return NOTHING
    if not isinstance(value, Mapping):
        raise BadResources(f"{place}: write {{cpus, memory}}")
    _refuse_others(value, {"cpus", "memory"}, place)
    cpus, memory = value.get("cpus"), value.get("memory")
    try:
        return Amount(
            None if cpus is None else parse_cpus(cpus),
            None if memory is None else _positive_memory(memory),
        )
    except BadQuantity as error:
        raise BadResources(f"{place}: {error}") from error


def _positive_memory(value: object) -> int:
    if not isinstance(value, str):
        raise BadQuantity("memory is a text with a unit: write one like 512m or 4Gi")
    parsed = parse_memory(value)
    if parsed <= 0:
        raise BadQuantity(f"{value!r} is no memory at all: leave it out or write more than 0")
    return parsed


def _exceeds(request: int | None, limit: int | None) -> bool:
    return request is not None and limit is not None and request > limit


def _cascade(first: Amount, second: Amount, third: Amount) -> Amount:
    """Each field from the first that declares it."""
    cpus, memory = first.cpu_millis, first.memory_bytes
    for amount in (second, third):
        cpus = amount.cpu_millis if cpus is None else cpus
        memory = amount.memory_bytes if memory is None else memory
    return Amount(cpus, memory)


def _equal_where_declared(wanted: Amount, given: Amount) -> bool:
    return wanted.cpu_millis in (None, given.cpu_millis) and wanted.memory_bytes in (
        None,
        given.memory_bytes,
    )
