"""Events are CloudEvents 1.0 with the fields that provisioning workflows know."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from kici_scaler.domain.provision_events import Emission, Wanted, scale_down, scale_up, source_of

AT = datetime(2025, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)
EMISSION = Emission("6f1c9a52", "cloud", "scaler-event-0123456789ab", AT)
WANTED = Wanted(
    labels=("linux", "cloud", "kici:scaler:cloud"),
    mandatory_labels=("gpu",),
    cpu_millis=1500,
    memory_bytes=2**30,
    orchestrator_url="wss://gateway.example/v1/agents",
    job_id="job-1",
    expires_at=AT + timedelta(minutes=5),
    claim_code="c0de",
)


def test_a_scale_up_is_a_cloud_event_with_everything_a_machine_needs() -> None:
    assert scale_up(source_of("prod"), EMISSION, WANTED) == {
        "specversion": "1.0",
        "id": "6f1c9a52",
        "source": "/kici-scaler/prod",
        "type": "kici.scaler.scale-up",
        "subject": "scaler-event-0123456789ab",
        "time": "2025-06-01T12:00:00.123Z",
        "datacontenttype": "application/json",
        "data": {
            "scalerName": "cloud",
            "agentId": "scaler-event-0123456789ab",
            "labels": ["linux", "cloud", "kici:scaler:cloud"],
            "mandatoryLabels": ["gpu"],
            "resources": {"cpus": 1.5, "memBytes": 2**30},
            "orchestratorUrl": "wss://gateway.example/v1/agents",
            "expiresAt": "2025-06-01T12:05:00.123Z",
            "requestId": "6f1c9a52",
            "claimCode": "c0de",
            "jobId": "job-1",
        },
    }


def test_dimensions_that_nobody_asked_for_and_warm_jobs_are_left_out() -> None:
    bare = replace(WANTED, cpu_millis=0, memory_bytes=0, job_id=None, claim_code=None)
    data = scale_up("/s", EMISSION, bare)["data"]
    assert isinstance(data, dict)
    assert data["resources"] == {}
    assert not {"jobId", "claimCode"} & set(data)


def test_a_scale_down_says_whom_and_why() -> None:
    event = scale_down("/s", EMISSION, "job-complete")
    assert event["type"] == "kici.scaler.scale-down"
    assert event["data"] == {
        "scalerName": "cloud",
        "agentId": "scaler-event-0123456789ab",
        "reason": "job-complete",
        "requestId": "6f1c9a52",
    }


def test_times_are_told_in_utc_whatever_zone_the_database_spoke_in() -> None:
    there = replace(EMISSION, at=AT.astimezone(timezone(timedelta(hours=2))))
    assert scale_down("/s", there, "idle")["time"] == "2025-06-01T12:00:00.123Z"


def test_events_are_json_and_the_code_is_in_no_text_about_them() -> None:
    assert json.loads(json.dumps(scale_up("/s", EMISSION, WANTED)))
    assert "c0de" not in repr(WANTED)
