"""The two events of a provision as CloudEvents 1.0, in the JSON format.

Names and fields are those that workflows written for the reference know; `expiresAt` is
new. The event's id is the delivery's, and the same however often it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from kici_scaler.domain.delivery import DeliveryKind

SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
TYPES = {
    DeliveryKind.SCALE_UP: "kici.scaler.scale-up",
    DeliveryKind.SCALE_DOWN: "kici.scaler.scale-down",
}
Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Emission:
    """What both events say: who, for whom, under which id."""

    request_id: str
    scaler: str
    agent_id: str
    at: datetime
    """When the event came to be; the same in every try."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The machine that a scale-up asks for."""

    labels: tuple[str, ...]
    """Everything its agent registers with."""
    mandatory_labels: tuple[str, ...]
    cpu_millis: int
    memory_bytes: int
    orchestrator_url: str
    job_id: str | None
    expires_at: datetime
    """After this the code is worth nothing, and nothing may be booted any more."""
    claim_code: str | None = field(default=None, repr=False)
    """None in what a broker carries; the receiver then fetches the event with it."""


def scale_up(source: str, emission: Emission, wanted: Wanted) -> Json:
    """The event that asks for a machine."""
    resources: Json = {}
    if wanted.cpu_millis > 0:
        resources["cpus"] = wanted.cpu_millis / 1000
    if wanted.memory_bytes > 0:
        resources["memBytes"] = wanted.memory_bytes
    data: Json = {
        "scalerName": emission.scaler,
        "agentId": emission.agent_id,
        "labels": list(wanted.labels),
        "mandatoryLabels": list(wanted.mandatory_labels),
        "resources": resources,
        "orchestratorUrl": wanted.orchestrator_url,
        "expiresAt": _text(wanted.expires_at),
        "requestId": emission.request_id,
    }
    if wanted.claim_code is not None:
        data["claimCode"] = wanted.claim_code
    if wanted.job_id is not None:
        data["jobId"] = wanted.job_id
    return _event(source, DeliveryKind.SCALE_UP, emission, data)


def scale_down(source: str, emission: Emission, reason: str) -> Json:
    """The event that has a machine taken away."""
    data: Json = {
        "scalerName": emission.scaler,
        "agentId": emission.agent_id,
        "reason": reason,
        "requestId": emission.request_id,
    }
    return _event(source, DeliveryKind.SCALE_DOWN, emission, data)


def source_of(installation_id: str) -> str:
    """What the events of an installation come from, as a URI reference."""
    return f"/kici-scaler/{installation_id}"


def _event(source: str, kind: DeliveryKind, emission: Emission, data: Json) -> Json:
    return {
        "specversion": SPEC_VERSION,
        "id": emission.request_id,
        "source": source,
        "type": TYPES[kind],
        "subject": emission.agent_id,
        "time": _text(emission.at),
        "datacontenttype": "application/json",
        "data": data,
    }


def _text(moment: datetime) -> str:
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
