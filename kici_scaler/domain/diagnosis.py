"""How a scaler does, from its failures of the last minutes: a row each, for people and probes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

WINDOW_SECONDS = 300.0
LONGEST_ERROR = 120


class Health(StrEnum):
    """Ordered from good to bad."""

    PASS = "pass"  # a verdict, not a password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Failed starts of one scaler within the window; bound ones had a job."""

    bound: int
    unbound: int
    last_error: str
    last_at_ms: int


@dataclass(frozen=True, slots=True)
class ScalerFacts:
    """What a diagnosis looks at."""

    name: str
    backend_type: str
    active_count: int
    retiring: bool = False
    trouble: str | None = None
    """Paused, degraded, backing off: a sentence, or None."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the diagnosis."""

    name: str
    health: Health
    message: str
    details: Mapping[str, object]


def diagnose(scalers: Sequence[ScalerFacts], failures: Mapping[str, FailureCount]) -> list[Row]:
    """A row for each configured scaler, or one that says that none is configured."""
    if not scalers:
        return [Row("scaler", Health.PASS, "no scaler is configured", {})]
    return [_row(each, failures.get(each.name)) for each in scalers]


def network_subject(bridge: str) -> str:
    """What findings about the guests' network on a machine's bridge are called."""
    return f"firecracker:{bridge}"


def diagnose_networks(
    bridges: Mapping[str, Collection[str]], machines: Mapping[str, Mapping[str, str]]
) -> list[Row]:
    """A row for each bridge of guests, or one that says that there is none.

    Args:
        bridges: the scalers of each bridge.
        machines: of each that lately said how it does, why it cannot run which scaler.
    """
    if not bridges:
        return [Row("firecracker", Health.PASS, "no scaler makes microVMs", {})]
    return [_network(name, set(scalers), machines) for name, scalers in sorted(bridges.items())]


def _network(
    bridge: str, scalers: Collection[str], machines: Mapping[str, Mapping[str, str]]
) -> Row:
    subject = network_subject(bridge)
    unhealthy = {
        machine: reason
        for machine, degraded in sorted(machines.items())
        for scaler, reason in degraded.items()
        if scaler in scalers and f"{subject}: " in reason
    }
    details: dict[str, object] = {"machines": sorted(machines), "unhealthy": unhealthy}
    if not machines:
        return Row(subject, Health.WARN, "no machine says how its network does", details)
    if unhealthy:
        message = "; ".join(f"{machine}: {reason}" for machine, reason in unhealthy.items())
        return Row(subject, Health.FAIL, message, details)
    return Row(subject, Health.PASS, f"healthy on {len(machines)} machines", details)


def worst(rows: Sequence[Row]) -> Health:
    """The worst of all rows."""
    order = list(Health)
    return max((row.health for row in rows), key=order.index, default=Health.PASS)


def _row(scaler: ScalerFacts, failures: FailureCount | None) -> Row:
    details: dict[str, object] = {
        "windowMs": int(WINDOW_SECONDS * 1000),
        "backendType": scaler.backend_type,
        "boundCount": 0 if failures is None else failures.bound,
        "unboundCount": 0 if failures is None else failures.unbound,
        "retiring": scaler.retiring,
        "activeCount": scaler.active_count,
    }
    if failures is None:
        message, health = "0 spawn failures in last 5m", Health.PASS
    else:
        details |= {"lastError": failures.last_error, "lastAtMs": failures.last_at_ms}
        total = failures.bound + failures.unbound
        message = (
            f"{total} spawn failures in last 5m ({failures.bound} with a job,"
            f" {failures.unbound} warm-pool); last: {shortened(failures.last_error)}"
        )
        health = Health.FAIL if failures.bound else Health.WARN
    if scaler.trouble is not None:
        message = f"{scaler.trouble}; {message}"
        health = max(health, Health.WARN, key=list(Health).index)
    if scaler.retiring:
        message = f"retiring, {scaler.active_count} agents left; {message}"
    return Row(f"scaler:{scaler.name}", health, message, details)


def shortened(error: str) -> str:
    """The first line of an error, at most 120 characters."""
    line = error.splitlines()[0] if error else ""
    return line if len(line) <= LONGEST_ERROR else f"{line[: LONGEST_ERROR - 1]}…"
