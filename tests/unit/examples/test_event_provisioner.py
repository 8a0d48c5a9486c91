"""The example keeps every promise that its page asks of receivers."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from examples.event_provisioner.machines import Machines
from examples.event_provisioner.receiver import SCALE_DOWN, SCALE_UP, Provisioner

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
AGENT = "scaler-event-0123456789ab"


class CountedMachines(Machines):
    """Boots nothing, and counts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.started: list[str] = []

    def _start(self, home: Path, gateway_url: str, claim_code: str) -> None:
        self.started.append(claim_code)


@pytest.fixture
def machines(tmp_path: Path) -> CountedMachines:
    return CountedMachines(tmp_path)


def send(receiver: Provisioner, type_: str, *, secret: str = SECRET, **data: Any) -> HTTPStatus:
    expires = datetime.now(UTC) + timedelta(minutes=5)
    event = {
        "type": type_,
        "data": {
            "agentId": AGENT,
            "orchestratorUrl": "ws://gateway.test",
            "claimCode": "c0de",
            "expiresAt": expires.isoformat(),
            **data,
        },
    }
    body, now = json.dumps(event), datetime.now(UTC)
    headers = {
        "webhook-id": "1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign("1", now, body),
    }
    return receiver.handle(headers, body.encode())


def test_one_agent_has_one_machine_however_often_it_is_asked_for(
    machines: CountedMachines,
) -> None:
    receiver = Provisioner(machines, (SECRET,))
    assert {send(receiver, SCALE_UP) for _ in range(3)} == {HTTPStatus.ACCEPTED}
    assert machines.started == ["c0de"]


def test_what_was_torn_down_never_boots_again_also_after_a_restart(
    machines: CountedMachines, tmp_path: Path
) -> None:
    assert send(Provisioner(machines, (SECRET,)), SCALE_DOWN) == HTTPStatus.NO_CONTENT
    restarted = CountedMachines(tmp_path)
    assert send(Provisioner(restarted, (SECRET,)), SCALE_UP) == HTTPStatus.GONE
    assert machines.started == restarted.started == []


def test_a_scale_down_may_come_twice_and_alone(machines: CountedMachines) -> None:
    receiver = Provisioner(machines, (SECRET,))
    assert {send(receiver, SCALE_DOWN) for _ in range(2)} == {HTTPStatus.NO_CONTENT}


def test_nothing_is_booted_after_it_expired(machines: CountedMachines) -> None:
    late = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    receiver = Provisioner(machines, (SECRET,))
    assert send(receiver, SCALE_UP, expiresAt=late) == HTTPStatus.GONE
    assert machines.started == []


def test_only_signed_events_count_and_either_secret_does(machines: CountedMachines) -> None:
    assert send(Provisioner(machines, (OTHER,)), SCALE_UP) == HTTPStatus.UNAUTHORIZED
    assert Provisioner(machines, (SECRET,)).handle({}, b"{}") == HTTPStatus.UNAUTHORIZED
    assert machines.started == []
    both = Provisioner(machines, (OTHER, SECRET))
    assert send(both, SCALE_UP) == HTTPStatus.ACCEPTED


def test_events_it_does_not_know_need_nothing(machines: CountedMachines) -> None:
    assert send(Provisioner(machines, (SECRET,)), "other") == HTTPStatus.NO_CONTENT
