"""Claims and deliveries through real gateways: before anybody is known, and for operators."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from kici_scaler.agent.protocol import (
    PROTOCOL_VERSION,
    Claim,
    ClaimError,
    ClaimResponse,
    CloseCode,
    Register,
    RegisterAck,
)
from kici_scaler.domain.delivery import Acted, Attempt, DeliveryKind
from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.embedded.redis import EmbeddedRedis
from kici_scaler.sealing import Envelope, ensure_keys, open_envelope, seal
from kici_scaler.service import deliver, keys, provision, reload
from kici_scaler.service.deliver import DeliveryOrder
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import migrate
from kici_scaler.store.engine import make_engine
from tests.integration.gateway.conftest import Prepared, a_house
from tests.integration.gateway.house import GatewayProcess, House
from tests.integration.gateway.played_agent import FACTS, played
from tests.support.servers import Databases

SCALERS = """
version: 1
globalMaxAgents: 1000
scalers:
  - name: cloud
    type: event
    maxAgents: 1000
    maxConcurrentSpawns: 1000
    platform: {os: linux, arch: x64}
    provisioningTargets: ["https://one.test/hook", acme/boot]
    labelSets:
      - labels: [linux, cloud]
"""
DONE = Attempt(Acted.YES, status=204)


@dataclass
class Front:
    """Two gateways and the provisions that ask for agents."""

    house: House
    one: GatewayProcess
    two: GatewayProcess

    @property
    def runtime(self) -> Runtime:
        return self.house.runtime

    def asked(self) -> list[DeliveryOrder]:
        """A job's provision: the tries of its scale-ups, first the webhook's."""
        job = self.house.new_job()
        body = self.house.body(job, labels=["linux", "cloud"])
        answer = self.house.client(self.one).post("/v1/requests", json=body)
        assert answer.json()["result"] == "spawning", answer.text
        public = self.house.seal_keys.newest.public
        provision.begin(
            self.runtime,
            seal=lambda code: seal(public, code.encode()).as_json(),
            gateway_url=self.one.agents_url,
        )
        orders, _ = deliver.take(self.runtime, DeliveryKind.SCALE_UP, most=100, per_target=100)
        mine = self.house.scalar("SELECT agent_id FROM spawns WHERE job_id = :job", job=job)
        found = [order for order in orders if order.row.agent_id == mine]
        return sorted(found, key=lambda order: order.row.id)

    def code_of(self, order: DeliveryOrder) -> str:
        assert order.row.provision is not None
        envelope = Envelope.from_json(order.row.provision.sealed_code)
        return open_envelope(self.house.seal_keys, envelope).decode()

    def minted(self) -> tuple[str, str]:
        """A provision that boots: its agent and its code."""
        webhook, _workflow = self.asked()
        deliver.record(self.runtime, webhook, DONE)
        return webhook.row.agent_id, self.code_of(webhook)


@pytest.fixture(scope="module")
def cloudy(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Schema, an event scaler, API keys, sealing keys."""
    folder = tmp_path_factory.mktemp("cloudy")
    url = databases.create()
    migrate.upgrade(url)
    engine = make_engine(url, application="test", pool_size=1)
    runtime = Runtime(engine, "test")
    file = folder / "scalers.yaml"
    file.write_text(SCALERS)
    reload.apply(runtime, reload.read(engine, file), author="test")
    operator = keys.create(runtime, scope=KeyScope.OPERATOR, name="op").token
    dispatcher = keys.create(runtime, scope=KeyScope.DISPATCHER, name="ci").token
    engine.dispose()
    path = folder / "seal-keys.json"
    return Prepared(url, operator, dispatcher, ensure_keys(path), path)


@pytest.fixture(scope="module")
def front(
    databases: Databases,
    cloudy: Prepared,
    redis_server: EmbeddedRedis,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Front]:
    """One house with two gateways for all tests of this module."""
    folder = tmp_path_factory.mktemp("front")
    with a_house(databases, cloudy, redis_server.url, folder) as house:
        yield Front(house, house.gateway(), house.gateway())


@pytest.fixture
def anybody(front: Front) -> Iterator[httpx.Client]:
    """A caller without any key."""
    with httpx.Client(timeout=20) as client:
        yield client


def redeem(client: httpx.Client, gateway: GatewayProcess, code: str) -> httpx.Response:
    return client.post(f"{gateway.url}/v1/claims/redeem", json={"claimCode": code})


def test_an_agent_claims_on_its_connection_and_registers_at_the_other_gateway(
    front: Front,
) -> None:
    agent_id, code = front.minted()
    with played(front.two.agents_url) as agent:
        agent.say(Claim("r1", code))
        answer = agent.expect(ClaimResponse)
    assert answer.request_id == "r1"
    credentials = answer.credentials
    assert credentials is not None
    assert (credentials.agent_id, credentials.orchestrator_url) == (agent_id, front.one.agents_url)
    assert {"linux", "cloud", "kici:scaler:cloud"} <= set(credentials.labels)
    with played(front.one.agents_url) as agent:
        agent.say(_register(agent_id, credentials.agent_token, credentials.labels))
        ack = agent.expect(RegisterAck)
    assert ack.agent_id == agent_id


def _register(agent_id: str, token: str, labels: tuple[str, ...]) -> Register:
    return Register(PROTOCOL_VERSION, agent_id, labels, 1, FACTS, token=token)


def test_a_code_is_redeemed_over_http_without_a_key(front: Front, anybody: httpx.Client) -> None:
    agent_id, code = front.minted()
    answer = redeem(anybody, front.two, code)
    assert answer.status_code == 200
    assert answer.json().keys() == {"agentToken", "agentId", "orchestratorUrl", "labels"}
    assert answer.json()["agentId"] == agent_id


def test_the_three_failures_are_told_apart_on_both_ways(
    front: Front, anybody: httpx.Client
) -> None:
    _, used = front.minted()
    _, lapsed = front.minted()
    redeem(anybody, front.one, used)
    front.house.scalar(
        "UPDATE claims SET expires_at = clock_timestamp() WHERE consumed_at IS NULL RETURNING 1"
    )
    told = {
        "0" * 64: (404, ClaimError.INVALID),
        used: (409, ClaimError.CONSUMED),
        lapsed: (410, ClaimError.EXPIRED),
    }
    for code, (status, text) in told.items():
        answer = redeem(anybody, front.two, code)
        assert (answer.status_code, answer.json()["error"]["message"]) == (status, text)
        with played(front.one.agents_url) as agent:
            agent.say(Claim("r", code))
            assert agent.expect(ClaimResponse).error == text


def test_thirty_two_connections_at_two_gateways_get_one_token(front: Front) -> None:
    agent_id, code = front.minted()
    start = threading.Barrier(32)

    def claim(number: int) -> ClaimResponse:
        gateway = (front.one, front.two)[number % 2]
        with played(gateway.agents_url) as agent:
            start.wait(60)
            agent.say(Claim(str(number), code))
            return agent.expect(ClaimResponse)

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(claim, range(32)))
    assert sum(each.credentials is not None for each in answers) == 1
    assert sum(each.error == ClaimError.CONSUMED for each in answers) == 31
    assert front.house.scalar(
        "SELECT count(*) FROM agent_tokens WHERE agent_id = :a", a=agent_id
    ) == 1  # fmt: skip
    logs = front.one.log() + front.two.log()
    assert agent_id in logs
    assert code not in logs


def test_claiming_does_not_prolong_the_time_to_register(front: Front) -> None:
    with played(front.one.agents_url) as agent:
        for number in range(3):
            agent.say(Claim(str(number), "0" * 64))
            agent.expect(ClaimResponse)
        agent.say(Claim("one too many", "0" * 64))
        assert agent.closed() == CloseCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize("body", ["{}", '{"claimCode": ""}', '{"claimCode": 7}', "[]", "x"])
def test_a_body_that_is_no_claim_is_refused(front: Front, anybody: httpx.Client, body: str) -> None:
    answer = anybody.post(
        f"{front.one.url}/v1/claims/redeem",
        content=body,
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 400


def test_nobody_without_a_key_is_read_at_length(front: Front, anybody: httpx.Client) -> None:
    answer = redeem(anybody, front.one, "0" * 8192)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too-large")


def test_a_failure_of_ours_is_told_without_details(front: Front, anybody: httpx.Client) -> None:
    _, code = front.minted()
    front.house.scalar("ALTER TABLE claims RENAME TO claims_away; SELECT 1")
    try:
        answer = redeem(anybody, front.one, code)
        with played(front.one.agents_url) as agent:
            agent.say(Claim("r", code))
            said = agent.expect(ClaimResponse).error
    finally:
        front.house.scalar("ALTER TABLE claims_away RENAME TO claims; SELECT 1")
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "internal failure")
    assert said == "internal failure"
    assert redeem(anybody, front.one, code).status_code == 200


def test_only_operators_see_deliveries(front: Front) -> None:
    front.asked()
    dispatcher = front.house.client(front.one, front.house.dispatcher)
    assert dispatcher.get("/v1/deliveries").status_code == 403
    assert front.house.client(front.one, "").get("/v1/deliveries").status_code == 401


def test_operators_list_show_and_hurry_deliveries(front: Front) -> None:
    operator = front.house.client(front.two)
    webhook, _ = front.asked()
    deliver.record(front.runtime, webhook, Attempt(Acted.NO, "nobody listens"))
    listed = operator.get("/v1/deliveries", params={"agent": webhook.row.agent_id}).json()
    shown = listed["deliveries"][1]
    assert shown["id"] == webhook.row.request_id
    assert (shown["kind"], shown["state"], shown["attempts"]) == ("scale-up", "pending", 1)
    assert shown["lastError"] == "nobody listens"
    assert "sealed" not in str(listed).lower()
    hurried = operator.post(f"/v1/deliveries/{shown['id']}/retry").json()
    assert hurried["nextAttemptAt"] <= shown["nextAttemptAt"]
    again, _ = deliver.take(front.runtime, DeliveryKind.SCALE_UP, most=10, per_target=10)
    assert [order.row.request_id for order in again] == [shown["id"]]
    deliver.record(front.runtime, again[0], DONE)
    over = operator.post(f"/v1/deliveries/{shown['id']}/retry")
    assert (over.status_code, over.json()["error"]["code"]) == (409, "conflict")
    assert operator.get("/v1/deliveries/none").status_code == 404


def test_the_command_line_tells_the_same(front: Front) -> None:
    webhook, _ = front.asked()
    deliver.record(front.runtime, webhook, Attempt(Acted.NO, "nobody listens"))
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("KICI_")},
        "KICI_URL": front.one.url,
        "KICI_API_KEY": front.house.operator,
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kici_scaler.cli.main", "deliveries", *arguments],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    listed = run("list", "--agent", webhook.row.agent_id)
    assert listed.returncode == 0, listed.stderr
    assert webhook.row.request_id in listed.stdout
    assert "nobody listens" in listed.stdout
    shown = run("show", webhook.row.request_id)
    assert "https://one.test/hook" in shown.stdout
    assert run("retry", webhook.row.request_id).returncode == 0
    gone = run("show", "none")
    assert gone.returncode == 1
    assert "no delivery 'none' is known" in gone.stderr


def test_a_router_fetches_its_event_acts_and_acknowledges(front: Front) -> None:
    dispatcher = front.house.client(front.two, front.house.dispatcher)
    _, workflow = front.asked()
    assert workflow.row.target == "acme/boot"
    path = f"/v1/deliveries/{workflow.row.request_id}"
    event = dispatcher.get(f"{path}/event").json()
    assert event["type"] == "kici.scaler.scale-up"
    assert event["data"]["claimCode"] == front.code_of(workflow)
    assert event["data"]["requestId"] == workflow.row.request_id
    assert front.house.state(workflow.row.agent_id) == "booting", "from now on it may act"
    assert dispatcher.get(f"{path}/event").json() == event, "a router that died asks again"
    for _ in range(2):
        answer = dispatcher.post(f"{path}/acknowledge")
        assert answer.json() == {"deliveryId": workflow.row.request_id, "state": "done"}
    assert dispatcher.get(f"{path}/event").status_code == 409
    assert deliver.record(front.runtime, workflow, Attempt(Acted.NO, "not acknowledged yet"))
    assert front.house.scalar(
        "SELECT state FROM event_deliveries WHERE request_id = :id", id=workflow.row.request_id
    ) == "done"  # fmt: skip


def test_a_router_cannot_have_the_code_of_a_webhook(front: Front) -> None:
    dispatcher = front.house.client(front.one, front.house.dispatcher)
    webhook, _ = front.asked()
    path = f"/v1/deliveries/{webhook.row.request_id}"
    assert dispatcher.get(f"{path}/event").status_code == 404
    assert dispatcher.post(f"{path}/acknowledge").status_code == 404


def test_a_router_that_comes_too_late_is_told_to_drop_the_event(front: Front) -> None:
    dispatcher = front.house.client(front.one, front.house.dispatcher)
    _, workflow = front.asked()
    operator = front.house.client(front.one)
    operator.post(f"/v1/agents/{workflow.row.agent_id}/destroy")
    path = f"/v1/deliveries/{workflow.row.request_id}"
    assert dispatcher.get(f"{path}/event").status_code == 409
