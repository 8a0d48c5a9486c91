"""Whatever an operator changes over HTTP is written down with the name of the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import yaml

from kici_scaler.sealing import seal
from kici_scaler.service import operations, provision, reload, scaler_control, sweep
from kici_scaler.store import audit, machines
from kici_scaler.store.audit import AuditRow
from kici_scaler.store.engine import transaction
from kici_scaler.store.machines import Announcement
from tests.integration.gateway.house import MACHINE, SCALERS, GatewayProcess, House, job_of

CLOUD = """
  - name: cloud
    type: event
    maxAgents: 10
    platform: {os: linux, arch: x64}
    provisioningTargets: ["https://one.test/hook"]
    labelSets: [{labels: [linux, cloud]}]
"""
WITH_CLOUD = yaml.safe_load(SCALERS + CLOUD)
BY_DISPATCHERS = {
    ("post", "/v1/requests"),
    ("post", "/v1/requests/batch"),
    ("post", "/v1/deliveries/{delivery_id}/acknowledge"),
    ("post", "/v1/claims/redeem"),
}
"""What machines do all day: it stands in rows of its own, and is nobody's decision."""

Parts = dict[str, str]


def _nothing(_house: House, _gateway: GatewayProcess) -> Parts:
    return {}


def _live_agent(house: House, gateway: GatewayProcess) -> Parts:
    return {"agent_id": house.order(gateway).row.agent_id}


def _waiting_job(house: House, gateway: GatewayProcess) -> Parts:
    return {"job_id": job_of(house.order(gateway))}


def _delivery(house: House, gateway: GatewayProcess) -> Parts:
    client = house.client(gateway)
    client.post("/v1/config/reload", json={"document": WITH_CLOUD}).raise_for_status()
    body = house.body(house.new_job(), labels=["linux", "cloud"])
    assert client.post("/v1/requests", json=body).json()["result"] == "spawning"
    public = house.seal_keys.newest.public
    provision.begin(
        house.runtime,
        seal=lambda code: seal(public, code.encode()).as_json(),
        gateway_url=gateway.agents_url,
    )
    return {"delivery_id": client.get("/v1/deliveries").json()["deliveries"][0]["id"]}


def _held_back(house: House, _gateway: GatewayProcess) -> Parts:
    sweep.sweep(house.runtime)
    with transaction(house.runtime.engine) as connection:
        connection.exec_driver_sql("UPDATE server_identity SET held_since = now()")
    return {}


def _silent_machine(house: House, _gateway: GatewayProcess) -> Parts:
    with transaction(house.runtime.engine) as connection:
        connection.exec_driver_sql("UPDATE machines SET last_heartbeat = now() - interval '1 day'")
    return {"machine_id": MACHINE}


def _revision(house: House, gateway: GatewayProcess) -> Parts:
    client = house.client(gateway)
    client.post("/v1/config/reload", json={"document": WITH_CLOUD}).raise_for_status()
    return {"revision": str(client.get("/v1/config/revisions").json()["revisions"][-1]["id"])}


def _scaler(_house: House, _gateway: GatewayProcess) -> Parts:
    return {"name": "local"}


def _machine(_house: House, _gateway: GatewayProcess) -> Parts:
    return {"name": MACHINE}


def _setting(_house: House, _gateway: GatewayProcess) -> Parts:
    return {"name": "machine_stale_seconds"}


ACTIONS: dict[tuple[str, str], tuple[Callable[[House, GatewayProcess], Parts], Any]] = {
    ("post", "/v1/agents/{agent_id}/destroy"): (_live_agent, None),
    ("post", "/v1/agents/{agent_id}/forget"): (_live_agent, None),
    ("post", "/v1/config/reload"): (_nothing, {"document": WITH_CLOUD}),
    ("post", "/v1/config/revisions/{revision}/rollback"): (_revision, None),
    ("post", "/v1/deliveries/{delivery_id}/retry"): (_delivery, None),
    ("post", "/v1/drain"): (_nothing, {"draining": True}),
    ("post", "/v1/machines/{machine_id}/forget"): (_silent_machine, None),
    ("post", "/v1/machines/{name}/drain"): (_machine, None),
    ("post", "/v1/machines/{name}/resume"): (_machine, None),
    ("post", "/v1/requests/{job_id}/cancel"): (_waiting_job, {"reason": "not needed"}),
    ("post", "/v1/resume"): (_held_back, None),
    ("post", "/v1/scalers/{name}/drain"): (_scaler, {"reason": "repairs"}),
    ("post", "/v1/scalers/{name}/pause"): (_scaler, {"reason": "repairs"}),
    ("post", "/v1/scalers/{name}/resume"): (_scaler, None),
    ("put", "/v1/settings/{name}"): (_setting, {"value": 1_800}),
    ("delete", "/v1/settings/{name}"): (_setting, None),
}
"""How each is prepared, and what is sent."""


@pytest.fixture(scope="module")
def client(shared: House, gateway: GatewayProcess) -> httpx.Client:
    return shared.client(gateway)


@pytest.fixture
def untouched(shared: House) -> None:
    """The house as it was before any action of another test."""
    runtime = shared.runtime
    with transaction(runtime.engine) as connection:
        connection.exec_driver_sql("UPDATE server_identity SET held_since = NULL")
        machines.announce(
            connection,
            Announcement(MACHINE, "bare-metal", "boot-1", "linux", "x64", 64_000, 1 << 36),
        )
    file = shared.folder / "scalers.yaml"
    file.write_text(SCALERS)
    reload.apply(runtime, reload.read(runtime.engine, file), author="test")
    operations.set_draining(runtime, False, actor="test")
    operations.set_machine_draining(runtime, MACHINE, False, actor="test")
    scaler_control.resume(runtime, "local", actor="test")


def _latest(house: House) -> AuditRow:
    with transaction(house.runtime.engine) as connection:
        return audit.recent(connection, 1)[0]


def test_every_route_that_changes_something_is_known_here(client: httpx.Client) -> None:
    document = client.get("/v1/openapi.json").json()
    changing = {
        (method, path)
        for path, operations in document["paths"].items()
        for method in operations
        if method not in ("get", "head", "options")
    }
    assert changing == ACTIONS.keys() | BY_DISPATCHERS


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("method", "path"), ACTIONS)
def test_an_operators_action_is_audited(
    shared: House, gateway: GatewayProcess, client: httpx.Client, method: str, path: str
) -> None:
    prepare, body = ACTIONS[method, path]
    parts = prepare(shared, gateway)
    before = _latest(shared)
    answer = client.request(method, path.format(**parts), json=body)
    assert answer.is_success, answer.text
    row = _latest(shared)
    assert row.id > before.id
    assert row.actor == "key op"
    assert row.action
    subject = next(iter(parts.values()), None)
    assert subject is None or "revision" in parts or row.subject == subject
    told = client.get("/v1/audit").json()["entries"][0]
    assert (told["actor"], told["action"], told["subject"]) == (row.actor, row.action, row.subject)


def test_what_a_dispatcher_cancels_is_its_daily_work(
    shared: House, gateway: GatewayProcess
) -> None:
    order = shared.order(gateway)
    before = _latest(shared)
    dispatcher = shared.client(gateway, shared.dispatcher)
    assert dispatcher.post(f"/v1/requests/{job_of(order)}/cancel").is_success
    assert _latest(shared) == before


def test_an_action_that_was_refused_is_none(shared: House, client: httpx.Client) -> None:
    before = _latest(shared)
    for path in ("/v1/scalers/nobody/drain", "/v1/machines/nobody/drain", "/v1/agents/no/destroy"):
        assert client.post(path, json={}).status_code in (400, 404)
    assert _latest(shared) == before
