"""The HTTP interface: who may ask, what is answered, and what it refuses."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.sealing import PublicKey
from kici_scaler.service import keys
from tests.integration.gateway.house import MACHINE, GatewayProcess, House, job_of
from tests.support.waiting import eventually


@pytest.fixture
def operator(shared: House, gateway: GatewayProcess) -> httpx.Client:
    return shared.client(gateway)


@pytest.fixture
def dispatcher(shared: House, gateway: GatewayProcess) -> httpx.Client:
    return shared.client(gateway, shared.dispatcher)


def error_of(response: httpx.Response) -> dict[str, str]:
    error: dict[str, str] = response.json()["error"]
    assert set(error) == {"code", "message", "hint"}
    return error


PATHS = [
    "/v1/requests", "/v1/requests/x", "/v1/requests/x/log", "/v1/events", "/v1/status",
    "/v1/capacity", "/v1/can-serve", "/v1/agents", "/v1/agents/x", "/v1/agents/x/logs",
    "/v1/sealing-key", "/v1/openapi.json", "/metrics", "/nowhere",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_answered_without_a_key(
    shared: House, gateway: GatewayProcess, path: str
) -> None:
    response = shared.client(gateway, "").get(path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert error_of(response)["code"] == "unauthorized"


@pytest.mark.parametrize(
    "token",
    ["x", "kici_operator_000000000000_" + "x" * 43, "kici_dispatcher_000000000000_x"],
)
def test_a_wrong_key_is_refused(shared: House, gateway: GatewayProcess, token: str) -> None:
    assert shared.client(gateway, token).get("/v1/status").status_code == 401


def test_a_key_whose_scope_was_changed_is_refused(shared: House, gateway: GatewayProcess) -> None:
    forged = shared.dispatcher.replace("kici_dispatcher_", "kici_operator_")
    assert shared.client(gateway, forged).get("/v1/agents").status_code == 401


def test_a_request_without_a_key_is_refused_before_its_body_is_read(
    shared: House, gateway: GatewayProcess
) -> None:
    response = shared.client(gateway, "").post("/v1/requests", content=b"x" * (1 << 19))
    assert response.status_code == 401


def test_probes_need_no_key(shared: House, gateway: GatewayProcess) -> None:
    stranger = shared.client(gateway, "")
    assert stranger.get("/healthz").json()["status"] == "ok"
    assert stranger.get("/readyz").json()["status"] == "ready"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/agents"), ("GET", "/v1/agents/x"), ("POST", "/v1/agents/x/destroy")],
)
def test_a_dispatcher_may_not_operate(dispatcher: httpx.Client, method: str, path: str) -> None:
    response = dispatcher.request(method, path)
    assert response.status_code == 403
    assert error_of(response)["code"] == "forbidden"


def test_an_agents_key_is_good_for_nothing_over_http(
    shared: House, gateway: GatewayProcess
) -> None:
    token = keys.create(shared.runtime, scope=KeyScope.AGENT, name="static").token
    assert shared.client(gateway, token).get("/v1/status").status_code == 403


def test_a_revoked_key_works_no_longer_than_seconds(shared: House, gateway: GatewayProcess) -> None:
    made = keys.create(shared.runtime, scope=KeyScope.DISPATCHER, name="leaver")
    client = shared.client(gateway, made.token)
    assert client.get("/v1/status").status_code == 200
    keys.revoke(shared.runtime, "leaver")
    eventually(lambda: client.get("/v1/status").status_code == 401, within=8)


def test_an_expired_key_is_refused(shared: House, gateway: GatewayProcess) -> None:
    made = keys.create(shared.runtime, scope=KeyScope.DISPATCHER, name="short", ttl_seconds=0.01)
    assert shared.client(gateway, made.token).get("/v1/status").status_code == 401


def test_the_use_of_a_key_is_noted(shared: House, gateway: GatewayProcess) -> None:
    made = keys.create(shared.runtime, scope=KeyScope.DISPATCHER, name="used")
    assert shared.client(gateway, made.token).get("/v1/status").status_code == 200
    (row,) = [row for row in keys.listed(shared.runtime) if row.name == "used"]
    assert row.last_used_at is not None


def test_guessing_keys_makes_an_address_wait_but_not_who_showed_a_good_one(house: House) -> None:
    gateway = house.gateway()
    operator = house.client(gateway)
    assert operator.get("/v1/status").status_code == 200
    stranger = house.client(gateway, "guess")
    statuses = [stranger.get("/v1/status").status_code for _ in range(35)]
    assert set(statuses) == {401, 429}
    limited = house.client(gateway, house.dispatcher).get("/v1/status")
    assert limited.status_code == 429
    assert int(limited.headers["retry-after"]) >= 1
    assert operator.get("/v1/status").status_code == 200


def test_a_websocket_elsewhere_is_refused(gateway: GatewayProcess) -> None:
    with pytest.raises(InvalidStatus), connect(gateway.agents_url + "/x"):
        pass


def test_asking_again_tells_what_became_of_a_job(
    shared: House, gateway: GatewayProcess, dispatcher: httpx.Client
) -> None:
    body = shared.body(shared.new_job())
    first = dispatcher.post("/v1/requests", json=body).json()
    again = dispatcher.post("/v1/requests", json=body).json()
    assert first == again
    assert first["scaler"] == "local"
    seen = dispatcher.get(f"/v1/requests/{body['jobId']}").json()
    assert (seen["state"], seen["standing"]) == ("assigned", "spawning")
    assert seen["machineId"] == MACHINE
    assert body["jobId"] in [
        each["jobId"] for each in dispatcher.get("/v1/requests").json()["requests"]
    ]
    assert "sealed" not in str(seen)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"jobId": ""}, "jobId"),
        ({"labels": "linux"}, "labels"),
        ({"labels": ["a,b"]}, "labels"),
        ({"resources": {"memory": "much"}}, "resources"),
        ({"unknown": 1}, "unknown"),
        ({"priority": 10**9}, "priority"),
        ({"payload": {"keyId": "k"}}, "payload.sealed"),
    ],
)
def test_a_request_that_breaks_a_rule_is_told_where(
    shared: House, dispatcher: httpx.Client, change: dict[str, Any], place: str
) -> None:
    body = shared.body(shared.new_job()) | change
    response = dispatcher.post("/v1/requests", json=body)
    assert response.status_code == 400
    assert place in error_of(response)["message"]


def test_what_is_not_json_is_refused(dispatcher: httpx.Client) -> None:
    response = dispatcher.post(
        "/v1/requests", content=b"{", headers={"content-type": "application/json"}
    )
    assert (response.status_code, error_of(response)["code"]) == (400, "bad-request")


@pytest.mark.parametrize(
    "change",
    [
        {"labels": ["linux\x00"]},
        {"container": {"image": "a\x00b"}},
        {"payload": {"keyId": "k\x00", "sealed": "x"}},
        {"payload": {"keyId": "k", "sealed": "x\x00"}},
        {"runId": "r\x00"},
    ],
    ids=["label", "image", "key-id", "sealed", "run-id"],
)
def test_text_that_no_database_takes_is_refused(
    shared: House, dispatcher: httpx.Client, change: dict[str, Any]
) -> None:
    response = dispatcher.post("/v1/requests", json=shared.body(shared.new_job()) | change)
    assert response.status_code == 400, response.text


def test_a_payload_that_is_too_large_is_refused(shared: House, dispatcher: httpx.Client) -> None:
    payload = {"keyId": "k", "sealed": "x" * (64 * 1024 + 1)}
    body = shared.body(shared.new_job()) | {"payload": payload}
    assert dispatcher.post("/v1/requests", json=body).status_code == 413


def test_a_body_that_is_too_large_is_refused(dispatcher: httpx.Client) -> None:
    assert dispatcher.post("/v1/requests", content=b"x" * (1 << 21)).status_code == 413

    def chunks() -> Any:
        for _ in range(40):
            yield b"x" * (1 << 16)

    assert dispatcher.post("/v1/requests", content=chunks()).status_code == 413


def test_a_batch_is_answered_in_order_and_one_bad_request_fails_alone(
    shared: House, dispatcher: httpx.Client
) -> None:
    jobs = [shared.new_job() for _ in range(3)]
    bodies = [shared.body(job) for job in jobs]
    bodies[1]["resources"] = {"memory": "lots"}
    response = dispatcher.post("/v1/requests/batch", json={"requests": bodies})
    assert response.status_code == 201
    answers = response.json()["answers"]
    assert [each["jobId"] for each in answers] == jobs
    assert [each["result"] for each in answers] == ["spawning", "failed", "spawning"]
    assert "resources" in answers[1]["reason"]
    assert shared.job_state(jobs[1]) is None


@pytest.mark.parametrize("requests", [[], [{}] * 1001, "x", [1]], ids=["0", "1001", "x", "1"])
def test_a_batch_of_the_wrong_shape_is_refused(dispatcher: httpx.Client, requests: Any) -> None:
    response = dispatcher.post("/v1/requests/batch", json={"requests": requests})
    assert response.status_code == 400


def test_a_full_batch_is_taken(shared: House, dispatcher: httpx.Client) -> None:
    labels = {"labels": ["nobody-has-this"]}
    bodies = [shared.body(shared.new_job()) | labels for _ in range(1000)]
    answers = dispatcher.post("/v1/requests/batch", json={"requests": bodies}).json()["answers"]
    assert {each["result"] for each in answers} == {"no-backend"}


def test_a_job_called_off_before_it_was_asked_for_stays_so(
    shared: House, dispatcher: httpx.Client
) -> None:
    job = f"{shared.new_job()}/with a slash?"
    path = "/v1/requests/" + job.replace("/", "%2F").replace("?", "%3F").replace(" ", "%20")
    assert dispatcher.post(f"{path}/cancel").json() == {"jobId": job, "state": "cancelled"}
    answer = dispatcher.post("/v1/requests", json=shared.body(job)).json()
    assert (answer["result"], answer["state"]) == ("skipped", "cancelled")
    assert dispatcher.get(path).json()["jobId"] == job


@pytest.mark.parametrize("path", ["/v1/requests/none", "/v1/requests/none/log", "/v1/nowhere"])
def test_what_is_not_known_is_404(dispatcher: httpx.Client, path: str) -> None:
    response = dispatcher.get(path)
    assert response.status_code == 404
    assert error_of(response)["code"] == "not-found"


@pytest.mark.parametrize("path", ["/v1/agents/none", "/v1/agents/none/logs"])
def test_an_agent_that_is_not_known_is_404(operator: httpx.Client, path: str) -> None:
    assert operator.get(path).status_code == 404


def test_destroying_an_agent_that_is_not_known_is_404(operator: httpx.Client) -> None:
    assert operator.post("/v1/agents/none/destroy").status_code == 404


def test_a_wrong_method_is_405(operator: httpx.Client) -> None:
    assert operator.delete("/v1/status").status_code == 405


def test_the_sealing_key_is_handed_out(shared: House, dispatcher: httpx.Client) -> None:
    found = dispatcher.get("/v1/sealing-key").json()
    assert PublicKey.from_json(found) == shared.seal_keys.newest.public


def test_status_counts_what_lives(
    shared: House, gateway: GatewayProcess, operator: httpx.Client
) -> None:
    before = operator.get("/v1/status").json()
    order = shared.order(gateway)
    after = operator.get("/v1/status").json()
    assert after["globalActiveCount"] == before["globalActiveCount"] + 1
    assert after["spawningCount"] == before["spawningCount"] + 1
    assert after["globalMaxAgents"] == 1000
    (local,) = after["backends"]
    assert (local["name"], local["type"], local["spawnsOnLocalHost"]) == (
        "local", "bare-metal", True,
    )  # fmt: skip
    assert local["activeCount"] == after["globalActiveCount"]
    assert local["states"]["booting"] >= 1
    assert "linux" in local["labelSets"][0]
    assert local["labelSetMandatoryLabels"] == [[]]
    (machine,) = after["machines"]
    assert (machine["id"], machine["state"], machine["isFresh"]) == (MACHINE, "up", True)
    assert machine["activeCount"] == after["globalActiveCount"]
    (front,) = after["gateways"]
    assert front["isFresh"]
    capacity = operator.get("/v1/capacity").json()
    (row,) = capacity["scalers"]
    assert row["available"] == 1000 - after["globalActiveCount"]
    assert shared.state(order.row.agent_id) is SpawnState.BOOTING


def test_whether_a_job_could_be_served_is_told(operator: httpx.Client) -> None:
    yes = operator.get("/v1/can-serve", params={"labels": "Linux,demo"}).json()
    assert (yes["served"], yes["scaler"], yes["labelSet"]) == (True, "local", ["linux", "demo"])
    no = operator.get("/v1/can-serve", params={"labels": "linux,gpu"}).json()
    assert (no["served"], no["scaler"]) == (False, None)
    assert "gpu" in no["others"][0]["reason"]
    assert operator.get("/v1/can-serve", params={"memory": "much"}).status_code == 400


def test_agents_are_listed_and_shown(
    shared: House, gateway: GatewayProcess, operator: httpx.Client
) -> None:
    order = shared.order(gateway)
    listed = operator.get("/v1/agents", params={"state": "booting"}).json()["agents"]
    (mine,) = [each for each in listed if each["agentId"] == order.row.agent_id]
    assert (mine["jobId"], mine["connected"]) == (job_of(order), False)
    assert mine["reservedBy"]
    assert mine["revision"] > 0
    shown = operator.get(f"/v1/agents/{order.row.agent_id}").json()
    assert shown["agent"] == mine
    asked = operator.get(f"/v1/requests/{job_of(order)}").json()
    assert {name: asked[name] for name in ("reservedBy", "revision", "machineId")} == {
        name: mine[name] for name in ("reservedBy", "revision", "machineId")
    }
    assert operator.get("/v1/agents", params={"scaler": "none"}).json()["agents"] == []
    assert operator.get("/v1/agents", params={"state": "asleep"}).status_code == 400


def test_events_are_followed_without_a_gap(
    shared: House, gateway: GatewayProcess, dispatcher: httpx.Client
) -> None:
    start = dispatcher.get("/v1/events", params={"limit": 1000}).json()["nextAfter"]
    found: list[Any] = []

    def follow() -> None:
        query = {"after": start, "wait": 20}
        found.append(dispatcher.get("/v1/events", params=query).json())

    follower = threading.Thread(target=follow)
    follower.start()
    order = shared.order(gateway, "true")
    assert shared.agent(order, gateway).exit_code() == 0
    follower.join(20)
    (page,) = found
    assert [each["type"] for each in page["events"]][:1] == ["agent.connecting"]
    assert page["nextAfter"] == page["events"][-1]["id"]
    assert all(each["id"] > start for each in page["events"])


def test_waiting_for_an_event_has_an_end(dispatcher: httpx.Client) -> None:
    after = (1 << 62) - 1
    began = time.monotonic()
    page = dispatcher.get("/v1/events", params={"after": after, "wait": 1}).json()
    assert page == {"events": [], "nextAfter": after}
    assert 0.9 < time.monotonic() - began < 10
    assert dispatcher.get("/v1/events", params={"wait": 31}).status_code == 400


def test_metrics_are_exposed(operator: httpx.Client) -> None:
    text = operator.get("/metrics").text
    assert 'kici_orch_scaler_cpus_used{scaler="local",scalerType="bare-metal"}' in text
    assert "kici_gateway_connected_agents" in text


def test_the_interface_describes_itself(operator: httpx.Client) -> None:
    document = operator.get("/v1/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert {"ScaleRequestBody", "RequestAnswer", "StatusView", "ErrorAnswer"} <= set(schemas)
    assert "jobId" in schemas["RequestAnswer"]["properties"]
    assert "globalActiveCount" in schemas["StatusView"]["properties"]
    submit = document["paths"]["/v1/requests"]["post"]
    assert submit["security"] == [{"HTTPBearer": []}]
