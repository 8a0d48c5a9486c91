"""How long things may take before something acts: live, bounded numbers.

Values in seconds. The defaults and floors are those operators of the reference know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeGuard

LEAST_SPAWN_TIMEOUT_SECONDS = 1.0
MOST_SPAWN_TIMEOUT_SECONDS = 900.0
LONGEST_SECONDS = 10 * 366 * 86_400.0
"""Ten years; what is longer is a mistake, and may not fit an interval of the database."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Every window of the cluster."""

    spawn_timeout_seconds: float = 300.0
    boot_floor_seconds: float = 300.0
    """The least time an agent has to register once its compute exists."""
    offer_timeout_seconds: float = 30.0
    lease_seconds: float = 30.0
    settle_seconds: float = 2.0
    """After a close, how long a result may still arrive before the exit is believed."""
    flap_grace_seconds: float = 120.0
    """Absence with a dead adopter that is forgiven."""
    stranded_timeout_seconds: float = 1_800.0
    """Absence with a live adopter that is forgiven."""
    maximum_lifetime_seconds: float = 86_400.0
    cancel_grace_seconds: float = 60.0
    """How long an agent that was told to stop its job may take until it is destroyed; well over
    what the reference agent gives a command between TERM and KILL."""
    quarantine_after_seconds: float = 900.0
    agent_token_ttl_seconds: float = 3_600.0
    backoff_base_seconds: float = 30.0
    backoff_max_seconds: float = 900.0
    failure_limit: float = 5.0
    gateway_stale_seconds: float = 15.0
    machine_stale_seconds: float = 30.0
    hint_after_seconds: float = 5.0
    """When a lost hint is repeated for the first time."""
    delivery_timeout_seconds: float = 10.0
    """For one try to hand an event to a target, from the name look-up to the answer."""
    teardown_grace_seconds: float = 60.0
    """How long an idle provisioned agent may stay connected after its teardown began, before
    it is told to go: until then its connection shows whether the machine really ends."""
    reattempt_interval_seconds: float = 600.0
    """When a scale-down that was answered without effect is sent anew."""
    claim_retention_seconds: float = 3_600.0
    outcome_retention_seconds: float = 86_400.0
    request_retention_seconds: float = 86_400.0
    event_retention_seconds: float = 86_400.0
    brake_share: float = 0.5
    """When more than this share of a scaler's agents is absent at once, none is condemned."""
    brake_minimum: float = 10.0
    """The brake counts from this many absent agents on; fewer prove nothing."""
    ageing_seconds: float = 30.0
    """After this wait a large request sets capacity aside that smaller ones would take."""

    @classmethod
    def of(cls, stored: Mapping[str, object]) -> Windows:
        """The defaults with stored values over them.

        Unknown keys are other settings; a value that is no sensible number counts as unset, so
        that nothing somebody stored can stop a sweep.
        """
        values = {
            key: float(value)
            for key, value in stored.items()
            if key in _NAMES and _is_sensible(value)
        }
        if not values:
            return DEFAULTS
        if "spawn_timeout_seconds" in values:
            values["spawn_timeout_seconds"] = bounded_spawn_timeout(values["spawn_timeout_seconds"])
        return cls(**values)


DEFAULTS = Windows()
_NAMES = frozenset(field.name for field in fields(Windows))


def spawn_timeout(stored: object) -> float | None:
    """A stored spawn time-out within its bounds; None when it is no sensible number."""
    return bounded_spawn_timeout(stored) if _is_sensible(stored) else None


def bounded_spawn_timeout(seconds: float) -> float:
    """Between 1 s and 900 s: a start must end well before its task's hard time limit."""
    return min(max(float(seconds), LEAST_SPAWN_TIMEOUT_SECONDS), MOST_SPAWN_TIMEOUT_SECONDS)


def _is_sensible(value: object) -> TypeGuard[float]:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= LONGEST_SECONDS
    )
