"""The database goes away and comes back: nobody is judged, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import make_url

from kici_scaler.agent.protocol import CloseCode, JobFinishedAck, JobPhase
from kici_scaler.domain.spawn import SpawnState
from tests.integration.gateway.house import GatewayProcess, House, job_of
from tests.integration.gateway.played_agent import claim_of, played
from tests.support.tcp_proxy import CutReply, TcpProxy
from tests.support.waiting import eventually


@pytest.fixture
def proxy(house: House) -> Iterator[TcpProxy]:
    """Between the gateway and its database; the test itself goes around it."""
    url = make_url(house.database_url)
    assert url.host is not None
    assert url.port is not None
    with TcpProxy((url.host, url.port)) as found:
        yield found


@pytest.fixture
def gateway(house: House, proxy: TcpProxy) -> GatewayProcess:
    url = make_url(house.database_url).set(host=proxy.host, port=proxy.port)
    return house.gateway(
        environment={"KICI_DATABASE_URL": url.render_as_string(hide_password=False)}
    )


def cut(proxy: TcpProxy) -> None:
    proxy.refuse()
    proxy.drop()


def test_a_result_is_acknowledged_once_the_database_is_back(
    house: House, proxy: TcpProxy, gateway: GatewayProcess
) -> None:
    order = house.order(gateway)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job_of(order))
        cut(proxy)
        for _ in range(40):
            agent.finish(job_of(order))
        with pytest.raises(TimeoutError):
            agent.hear(within=2)
        assert house.job_state(job_of(order)) == "running"
        proxy.listen()
        agent.expect(JobFinishedAck, within=20)
    assert house.job_state(job_of(order)) == "succeeded"


def test_an_acceptance_waits_for_the_database(
    house: House, proxy: TcpProxy, gateway: GatewayProcess
) -> None:
    order = house.order(gateway)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        cut(proxy)
        proxy.listen()
        assert agent.run_job(job_of(order)).job_id == job_of(order)


def test_who_registers_meanwhile_is_told_to_come_back(
    house: House, proxy: TcpProxy, gateway: GatewayProcess
) -> None:
    order = house.order(gateway)
    cut(proxy)
    with played(gateway.agents_url, order) as agent:
        agent.say(agent.greeting())
        assert agent.closed(within=20) == CloseCode.REFUSED_FOR_NOW
    proxy.listen()
    with played(gateway.agents_url, order) as agent:
        assert agent.register(connection=2).pending_dispatch


def test_callers_are_told_to_ask_again_and_probes_tell_the_truth(
    house: House, proxy: TcpProxy, gateway: GatewayProcess
) -> None:
    client = house.client(gateway)
    assert client.get("/v1/status").status_code == 200
    cut(proxy)
    response = client.get("/v1/status")
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["error"]["code"] == "unavailable"
    assert client.post("/v1/requests", json=house.body("job-x")).status_code == 503
    eventually(lambda: client.get("/readyz").status_code == 503, within=30)
    assert client.get("/healthz").status_code == 200
    proxy.listen()
    eventually(lambda: client.get("/readyz").status_code == 200, within=30)


def test_a_request_whose_commit_was_not_confirmed_is_answered_all_the_same(
    house: House, proxy: TcpProxy, gateway: GatewayProcess
) -> None:
    client = house.client(gateway)
    client.get("/v1/status")
    proxy.requests = CutReply(b"COMMIT")
    response = client.post("/v1/requests", json=house.body("job-1"))
    assert response.status_code in (201, 503), response.text
    again = client.post("/v1/requests", json=house.body("job-1"))
    assert again.status_code == 201
    assert again.json()["result"] == "spawning"
    assert house.scalar("SELECT count(*) FROM spawns WHERE job_id = 'job-1'") == 1


def test_agents_outlive_an_outage_that_their_gateway_does_not(
    house: House, proxy: TcpProxy, gateway: GatewayProcess
) -> None:
    """It is declared dead meanwhile; then it takes its connections back."""
    order = house.order(gateway)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job_of(order))
        cut(proxy)
        house.scalar("UPDATE gateways SET dead_at = clock_timestamp() RETURNING 1")
        house.scalar("UPDATE agents SET unseen_since = clock_timestamp() RETURNING 1")
        proxy.listen()
        eventually(
            lambda: house.scalar("SELECT count(*) FROM agents WHERE unseen_since IS NULL") == 1,
            within=20,
        )
        agent.finish(job_of(order))
        agent.expect(JobFinishedAck)
    assert house.state(order.row.agent_id) is SpawnState.DESTROYING


def test_a_departure_during_an_outage_is_recorded_after_it(
    house: House, proxy: TcpProxy, gateway: GatewayProcess
) -> None:
    order = house.order(gateway)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job_of(order))
        cut(proxy)
    proxy.listen()
    eventually(
        lambda: house.scalar("SELECT count(*) FROM agents WHERE unseen_since IS NOT NULL") == 1,
        within=20,
    )
    with played(gateway.agents_url, order) as agent:
        agent.register(connection=2, job=claim_of(job_of(order), JobPhase.RUNNING))
        agent.finish(job_of(order))
        agent.expect(JobFinishedAck)


@pytest.mark.parametrize(
    ("variable", "value", "said", "code"),
    [
        ("KICI_DATABASE_URL", "postgresql://u:p@127.0.0.1:1/x", "cannot be reached", 2),
        ("KICI_DATABASE_URL", "", "KICI_DATABASE_URL is not set", 1),
        ("KICI_SEAL_KEYS_PATH", "/nowhere/keys", "no file of sealing keys", 2),
        ("KICI_PORT", "0", "KICI_PORT", 1),
    ],
)
def test_a_gateway_that_cannot_start_says_why_in_one_line(
    house: House, variable: str, value: str, said: str, code: int
) -> None:
    ended = house.failed_gateway({variable: value})
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == code


def test_a_port_in_use_is_named(house: House) -> None:
    first = house.gateway()
    ended = house.failed_gateway({"KICI_PORT": str(first.port)})
    assert f"127.0.0.1:{first.port}" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 2


def test_a_database_without_a_schema_is_named(house: House, empty_database: str) -> None:
    ended = house.failed_gateway({"KICI_DATABASE_URL": empty_database})
    assert "kici-scaler migrate" in ended.stderr
    assert ended.returncode == 2
