"""The event that a delivery is about, from its row."""

from __future__ import annotations

from kici_scaler.domain import provision_events
from kici_scaler.domain.provision_events import Emission, Json, Wanted
from kici_scaler.store.deliveries import TakenDelivery


def event_of(source: str, row: TakenDelivery, *, code: str | None) -> Json:
    """The CloudEvent; `code` None leaves the claim code out."""
    emission = Emission(row.request_id, row.scaler, row.agent_id, row.created_at)
    provision = row.provision
    if provision is None:
        assert row.reason is not None, "a scale-down has a reason"
        return provision_events.scale_down(source, emission, row.reason)
    wanted = Wanted(
        labels=provision.labels,
        mandatory_labels=provision.gate,
        cpu_millis=provision.cpu_millis,
        memory_bytes=provision.memory_bytes,
        orchestrator_url=provision.orchestrator_url,
        job_id=provision.job_id,
        expires_at=provision.code_until,
        claim_code=code,
    )
    return provision_events.scale_up(source, emission, wanted)
