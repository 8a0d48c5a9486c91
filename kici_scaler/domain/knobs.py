"""Live settings: what each knob means, how far it turns, and which combinations hold.

Floors and defaults are those that operators of the reference know; a name of the reference
(durations in milliseconds) is understood wherever one of ours is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kici_scaler.domain.windows import Windows

LONGEST_SPAWN = 900.0
"""Below the time limit of a task, which is below half the broker's visibility timeout."""
DAY = 86_400.0


class Unit(StrEnum):
    """What a value counts."""

    SECONDS = "seconds"
    COUNT = "count"
    """Whole numbers only."""
    SHARE = "share"
    """Of one."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One live setting.

    Attributes:
        reference: its name in the reference, where durations are in milliseconds.
        per_org: whether an organisation may have its own value.
    """

    key: str
    floor: float
    ceiling: float
    about: str
    reference: str | None = None
    per_org: bool = False
    unit: Unit = Unit.SECONDS

    @property
    def default(self) -> float:
        """The value when nothing is stored."""
        return float(getattr(_DEFAULTS, self.key))

    def problem(self, value: float) -> str | None:
        """Why the value is out of bounds, or None."""
        if not self.floor <= value <= self.ceiling:
            return (
                f"{self.key} is from {written(self.floor)} to {written(self.ceiling)},"
                f" not {written(value)}"
            )
        if self.unit is Unit.COUNT and value != int(value):
            return f"{self.key} is a whole number, not {written(value)}"
        return None


_DEFAULTS = Windows()

KNOBS: tuple[Knob, ...] = (
    Knob("spawn_timeout_seconds", 1, LONGEST_SPAWN, "how long creating compute may take",
         "scaler_spawn_timeout_ms", per_org=True),
    Knob("boot_floor_seconds", 10, 3_600, "the least time an agent has to register"),
    Knob("offer_timeout_seconds", 1, 600, "how long an agent may take to accept its job"),
    Knob("lease_seconds", 10, 300, "how long a worker that stopped keeps its rows"),
    Knob("settle_seconds", 0.1, 60, "how long a result may follow an agent's exit"),
    Knob("flap_grace_seconds", 1, DAY,
         "absence forgiven when the adopter died: several of an agent's pauses between tries",
         "reroute_flap_grace_ms"),
    Knob("stranded_timeout_seconds", 60, 7 * DAY, "absence forgiven when the adopter lives",
         "scaler_reap_stranded_timeout_ms"),
    Knob("maximum_lifetime_seconds", 60, 30 * DAY, "the longest a job may run"),
    Knob("cancel_grace_seconds", 5, 3_600, "how long an agent may take to stop a cancelled job"),
    Knob("quarantine_after_seconds", 60, DAY, "how long a destroy is tried before the alarm"),
    Knob("agent_token_ttl_seconds", 1, 7 * DAY, "how long a fresh agent token may be used",
         "agent_token_ttl_ms"),
    Knob("backoff_base_seconds", 1, 3_600, "the pause after one failed start",
         "scaler_provision_backoff_base_ms"),
    Knob("backoff_max_seconds", 1, DAY, "the longest pause after failed starts",
         "scaler_provision_backoff_max_ms"),
    Knob("failure_limit", 1, 1_000, "failed starts in a row that are called out",
         "scaler_provision_max_consecutive_failures", unit=Unit.COUNT),
    Knob("gateway_stale_seconds", 12, 600, "silence after which a gateway counts as dead"),
    Knob("machine_stale_seconds", 12, 3_600, "silence after which a machine counts as unreachable"),
    Knob("hint_after_seconds", 0.5, 60, "when a lost hint is first repeated"),
    Knob("delivery_timeout_seconds", 1, 120, "how long a target may take to answer"),
    Knob("teardown_grace_seconds", 1, 3_600, "how long a torn down agent may stay connected"),
    Knob("reattempt_interval_seconds", 60, DAY, "pause between repeated scale-downs",
         "scaler_reap_reattempt_interval_ms"),
    Knob("claim_retention_seconds", 0, 30 * DAY, "how long expired claims are kept",
         "scaler_claim_retention_ms"),
    Knob("outcome_retention_seconds", DAY, 365 * DAY, "how long outcomes are kept"),
    Knob("request_retention_seconds", 3_600, 365 * DAY, "how long ended requests are kept"),
    Knob("event_retention_seconds", 3_600, 365 * DAY, "how long events are kept"),
    Knob("brake_share", 0.05, 1, "share of absent agents above which none is condemned",
         unit=Unit.SHARE),
    Knob("brake_minimum", 1, 100_000, "absent agents from which on the brake counts",
         unit=Unit.COUNT),
    Knob("ageing_seconds", 1, DAY, "wait after which room is kept for a large request"),
)  # fmt: skip

_BY_NAME = {knob.key: knob for knob in KNOBS} | {
    knob.reference: knob for knob in KNOBS if knob.reference is not None
}


def written(value: float) -> str:
    """A value as a person writes it: `30`, `0.5`."""
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def find(name: str) -> Knob | None:
    """The knob of that name, ours or the reference's."""
    return _BY_NAME.get(name)


def to_ours(name: str, value: float) -> float:
    """A value in our unit: durations under a reference name are milliseconds."""
    knob = _BY_NAME[name]
    in_millis = name == knob.reference and knob.unit is Unit.SECONDS
    return value / 1000.0 if in_millis else value


def contradictions(effective: Mapping[str, float]) -> Iterator[str]:
    """What effective values together break."""
    if effective["backoff_max_seconds"] < effective["backoff_base_seconds"]:
        yield "backoff_max_seconds may not be below backoff_base_seconds"
    if effective["flap_grace_seconds"] < 2 * effective["gateway_stale_seconds"]:
        yield (
            "flap_grace_seconds may not be below twice gateway_stale_seconds: agents need time to"
            " return after their gateway is noticed to be dead"
        )
    if effective["stranded_timeout_seconds"] < effective["flap_grace_seconds"]:
        yield "stranded_timeout_seconds may not be below flap_grace_seconds"


def effective(stored: Mapping[str, float]) -> dict[str, float]:
    """Every knob's value: the stored one, else the default."""
    return {knob.key: stored.get(knob.key, knob.default) for knob in KNOBS}
