"""The operator's HTTP: configurations, live settings, scalers and machines; and the signal."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.gateway.house import SCALERS, GatewayProcess, House
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def scaler_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the gateway's settings name."""
    path = tmp_path_factory.mktemp("config") / "scalers.yaml"
    path.write_text(SCALERS)
    return path


@pytest.fixture(scope="module")
def gateway(shared: House, scaler_file: Path) -> GatewayProcess:
    """A gateway with a scaler file."""
    return shared.gateway(environment={"KICI_SCALER_CONFIG_PATH": str(scaler_file)})


@pytest.fixture(scope="module")
def client(shared: House, gateway: GatewayProcess) -> httpx.Client:
    """The operator."""
    return shared.client(gateway)


@pytest.fixture(autouse=True)
def _as_before(client: httpx.Client, scaler_file: Path) -> Iterator[None]:
    """Every test begins and ends with the configuration of the house."""
    yield
    scaler_file.write_text(SCALERS)
    assert client.post("/v1/config/reload", json={}).status_code == 200


def _document(**more: Any) -> dict[str, Any]:
    """The configuration of the house, with changes to its one scaler."""
    loaded: dict[str, Any] = yaml.safe_load(SCALERS)
    loaded["scalers"][0] |= more
    return loaded


def _reload(client: httpx.Client, document: object, **more: object) -> httpx.Response:
    return client.post("/v1/config/reload", json={"document": document, **more})


def _revisions(client: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/config/revisions").json()["revisions"]
    return found


def test_a_document_is_planned_and_then_takes_over(client: httpx.Client) -> None:
    (before, *_) = _revisions(client)
    wanted = _document(maxAgents=7)
    planned = _reload(client, wanted, plan=True).json()
    assert (planned["applied"], planned["revision"]) == (False, before["id"])
    assert planned["scalers"] == [
        {"name": "local", "bucket": "changed", "changes": ["maxAgents: 1000 -> 7"]}
    ]
    assert _revisions(client)[0] == before
    done = _reload(client, wanted, source="a pipeline").json()
    assert done["applied"]
    now, *_ = _revisions(client)
    assert now["id"] == done["revision"]
    assert (now["active"], now["source"], now["summary"]) == (
        True, "a pipeline", "~local (maxAgents)",
    )  # fmt: skip
    assert now["author"].startswith("key ")


def test_a_configuration_that_is_shown_can_be_sent_back(client: httpx.Client) -> None:
    newest = _revisions(client)[0]["id"]
    shown = client.get(f"/v1/config/revisions/{newest}").json()["document"]
    again = _reload(client, shown).json()
    assert (again["applied"], again["revision"]) == (False, newest)


def test_every_mistake_is_answered_with_its_place(client: httpx.Client) -> None:
    before = _revisions(client)
    answer = _reload(client, _document(maxAgents="many", maxAgent=3), source="mine")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "invalid-configuration"
    places = {(each["file"], each["path"]) for each in error["problems"]}
    assert places == {("mine", "scalers[0].maxAgents"), ("mine", "scalers[0].maxAgent")}
    assert all(each["message"] for each in error["problems"])
    assert _revisions(client) == before


def test_a_rejection_is_answered_with_everything_that_stands_against_it(
    client: httpx.Client,
) -> None:
    wanted = _document(type="container")
    wanted["scalers"][0]["labelSets"] = [{"labels": ["linux"], "image": "x"}]
    answer = _reload(client, wanted)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "reload-rejected"
    (problem,) = error["problems"]
    assert "new name" in problem["message"]


IN_JSON = {"content-type": "application/json"}
HOSTILE = {
    "no object": [],
    "text": "scalers: []",
    "a zero byte": _document(orchestratorUrl="ws://x/\0"),
    "half a character": _document(roles=["\ud800"]),
    "a zero byte in a name": _document(name="a\0b"),
    "a huge number": _document(maxAgents=10**300),
    "a zero byte in the environment": _document(
        labelSets=[{"labels": ["x"], "binaryPath": "builtin:agent", "env": {"A": "\0"}}]
    ),
    "half a character in the environment": _document(
        labelSets=[{"labels": ["x"], "binaryPath": "builtin:agent", "env": {"A": "\udfff"}}]
    ),
}


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE)
def test_no_document_makes_the_gateway_fail(client: httpx.Client, document: object) -> None:
    before = _revisions(client)
    body = json.dumps({"document": document, "source": "x"})
    answer = client.post("/v1/config/reload", content=body, headers=IN_JSON)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]
    assert _revisions(client) == before


def test_a_body_too_large_for_any_scaler_file_is_refused(client: httpx.Client) -> None:
    answer = _reload(client, {"version": 1, "scalers": ["x" * (9 << 20)]})
    assert answer.status_code == 413


def test_a_configuration_larger_than_any_request_is_taken(client: httpx.Client) -> None:
    wanted = _document()
    wanted["scalers"][0]["labelSets"][0]["env"] = {f"V{n}": "x" * 1000 for n in range(1500)}
    assert _reload(client, wanted).status_code == 200


def test_a_dispatcher_may_not_reload(shared: House, gateway: GatewayProcess) -> None:
    dispatcher = shared.client(gateway, shared.dispatcher)
    assert _reload(dispatcher, _document()).status_code == 403
    assert dispatcher.get("/v1/config/revisions").status_code == 403
    assert dispatcher.put("/v1/settings/ageing_seconds", json={"value": 5}).status_code == 403


def test_the_gateways_own_file_takes_over_when_none_is_sent(
    client: httpx.Client, scaler_file: Path
) -> None:
    scaler_file.write_text(SCALERS.replace("maxAgents: 1000", "maxAgents: 8"))
    done = client.post("/v1/config/reload", json={}).json()
    assert done["applied"]
    assert _revisions(client)[0]["source"] == str(scaler_file)
    scaler_file.write_text("scalers: [")
    error = client.post("/v1/config/reload", json={}).json()["error"]
    assert (error["code"], error["problems"][0]["line"]) == ("invalid-configuration", 1)
    scaler_file.unlink()
    answer = client.post("/v1/config/reload", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (
        400, "unreadable-configuration",
    )  # fmt: skip


def test_a_gateway_without_a_file_says_so(shared: House) -> None:
    client = shared.client(shared.gateway())
    answer = client.post("/v1/config/reload", json={})
    assert answer.status_code == 400
    assert "KICI_SCALER_CONFIG_PATH" in answer.json()["error"]["hint"]


def test_the_signal_reloads_the_file_and_a_bad_one_is_only_logged(
    client: httpx.Client, gateway: GatewayProcess, scaler_file: Path
) -> None:
    scaler_file.write_text(SCALERS.replace("maxAgents: 1000", "maxAgents: 9"))
    gateway.signal(signal.SIGHUP)
    eventually(lambda: _revisions(client)[0]["author"] == "SIGHUP", 15, why=gateway.log)
    now = _revisions(client)[0]
    scaler_file.write_text(SCALERS.replace("maxAgents: 1000", "maxAgents: none"))
    gateway.signal(signal.SIGHUP)
    eventually(lambda: "reload refused; nothing changed" in gateway.log(), 15, why=gateway.log)
    assert "maxAgents" in gateway.log()
    assert _revisions(client)[0] == now
    assert client.get("/healthz").status_code == 200


def test_an_earlier_revision_comes_back(client: httpx.Client) -> None:
    first = _revisions(client)[-1]["id"]
    _reload(client, _document(maxAgents=3))
    done = client.post(f"/v1/config/revisions/{first}/rollback").json()
    assert done["applied"]
    assert _revisions(client)[0]["source"] == f"rollback to revision {first}"
    assert client.post("/v1/config/revisions/99999/rollback").status_code == 404
    assert client.get("/v1/config/revisions/99999").status_code == 404


def test_what_retires_shows_with_its_age_until_it_is_gone(
    shared: House, gateway: GatewayProcess, client: httpx.Client
) -> None:
    order = shared.order(gateway, "true")
    newest = _revisions(client)[0]["id"]
    wanted = _document(name="fresh")
    done = _reload(client, wanted).json()
    assert done["drained"] == {"local": {"booting": 1}}
    status = client.get("/v1/status").json()["backends"]
    fresh, local = status
    assert (fresh["name"], fresh["retiring"]) == ("fresh", False)
    assert (local["retiring"], local["retiringRevision"]) == (True, newest)
    assert local["states"] == {"booting": 1}
    assert local["retiringSince"]
    assert "left the configuration" in local["whyNothing"]
    agent = order.row.agent_id
    assert client.post(f"/v1/agents/{agent}/destroy", json={}).status_code < 300
    refused = client.post("/v1/scalers/local/pause", json={})
    assert refused.status_code == 409


def test_settings_are_listed_changed_and_put_back(client: httpx.Client) -> None:
    listed = {each["key"]: each for each in client.get("/v1/settings").json()["settings"]}
    assert listed["ageing_seconds"]["source"] == "default"
    changed = client.put("/v1/settings/ageing_seconds", json={"value": 45}).json()
    assert (changed["value"], changed["source"]) == (45, "cluster")
    assert changed["changedBy"].startswith("key ")
    own = client.put(
        "/v1/settings/scaler_spawn_timeout_ms", json={"value": 60_000}, params={"org": "acme"}
    ).json()
    assert (own["key"], own["value"], own["source"]) == (
        "spawn_timeout_seconds", 60, "organisation",
    )  # fmt: skip
    assert client.delete("/v1/settings/ageing_seconds").json()["source"] == "default"
    assert client.get("/v1/settings/ageing_seconds").json()["value"] == 30


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("ageing_seconds", {"value": 0}, 400),
        ("ageing_seconds", {"value": "soon"}, 400),
        ("ageing_seconds", {}, 400),
        ("backoff_max_seconds", {"value": 2}, 400),
        ("no_such_setting", {"value": 2}, 404),
    ],
)
def test_a_setting_that_may_not_be_is_refused(
    client: httpx.Client, name: str, body: dict[str, object], status: int
) -> None:
    answer = client.put(f"/v1/settings/{name}", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_a_scaler_is_paused_and_resumed(client: httpx.Client) -> None:
    client.post("/v1/scalers/local/pause", json={"reason": "new driver"})
    (local,) = client.get("/v1/status").json()["backends"]
    assert (local["standing"], local["whyNothing"]) == (
        "paused", "scaler `local` is paused: new driver",
    )  # fmt: skip
    client.post("/v1/scalers/local/resume")
    (local,) = client.get("/v1/status").json()["backends"]
    assert local["standing"] == "active"
    assert client.post("/v1/scalers/nobody/pause", json={}).status_code == 404


def test_a_machine_drains_and_resumes(client: httpx.Client) -> None:
    assert client.post("/v1/machines/m1/drain").json() == {"subject": "m1", "done": "draining"}
    (machine,) = client.get("/v1/status").json()["machines"]
    assert machine["state"] == "draining"
    client.post("/v1/machines/m1/resume")
    (machine,) = client.get("/v1/status").json()["machines"]
    assert machine["state"] == "up"
    assert machine["degraded"] == {}
    assert client.post("/v1/machines/nowhere/drain").status_code == 404


@pytest.mark.parametrize("text", ["\0", "\ud800", "a\0b"], ids=ascii)
def test_no_text_makes_the_gateway_fail(client: httpx.Client, text: str) -> None:
    """What the database cannot hold is refused where it comes in."""
    wanted = _document(maxAgents=5)
    bodies = [
        ("POST", "/v1/config/reload", {"document": wanted, "source": text}),
        ("POST", "/v1/scalers/local/pause", {"reason": text}),
    ]
    for method, path, body in bodies:
        answer = client.request(method, path, content=json.dumps(body), headers=IN_JSON)
        assert answer.status_code == 400, f"{path}: {answer.text}"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/scalers/a%00b/pause"),
        ("POST", "/v1/machines/a%00b/drain"),
        ("PUT", "/v1/settings/a%00b"),
        ("PUT", "/v1/settings/spawn_timeout_seconds?org=a%00b"),
        ("DELETE", "/v1/settings/spawn_timeout_seconds?org=a%00b"),
        ("GET", "/v1/settings?org=a%00b"),
        ("GET", "/v1/config/revisions/999999999999999999999"),
        ("POST", "/v1/config/revisions/999999999999999999999/rollback"),
        ("GET", "/v1/config/revisions?limit=0"),
    ],
)
def test_no_name_makes_the_gateway_fail(client: httpx.Client, method: str, path: str) -> None:
    body = {"value": 5} if method == "PUT" else {}
    answer = client.request(method, path, json=body)
    assert answer.status_code in (400, 404), answer.text


def test_what_operators_did_is_listed(
    client: httpx.Client, shared: House, gateway: GatewayProcess
) -> None:
    client.put("/v1/settings/ageing_seconds", json={"value": 31})
    client.delete("/v1/settings/ageing_seconds")
    latest, before = client.get("/v1/audit", params={"limit": 2}).json()["entries"]
    assert (latest["action"], latest["subject"]) == ("setting-reset", "ageing_seconds")
    assert before["detail"] == {"old": 30.0, "new": 31.0, "org": None}
    assert shared.client(gateway, shared.dispatcher).get("/v1/audit").status_code == 403
