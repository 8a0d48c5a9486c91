"""One job through a real gateway and a real agent."""

from __future__ import annotations

import json
from typing import Any

import httpx

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.sealing import generate_key, seal
from tests.integration.gateway.house import GatewayProcess, House
from tests.support.waiting import eventually


def log_of(client: httpx.Client, job_id: str, **query: str) -> list[dict[str, Any]]:
    """The records of a job's log."""
    text = client.get(f"/v1/requests/{job_id}/log", params=query).text
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def lines_of(records: list[dict[str, Any]]) -> list[str]:
    return [line for record in records for line in record["lines"]]


def start_job(house: House, gateway: GatewayProcess, *command: str) -> Any:
    client = house.client(gateway, house.dispatcher)
    answer = client.post("/v1/requests", json=house.body("job-1", *command))
    assert answer.status_code == 201, answer.text
    assert answer.json()["result"] == "spawning"
    (order,) = house.take()
    return order


def test_a_job_is_requested_run_and_reported(house: House) -> None:
    gateway = house.gateway()
    client = house.client(gateway, house.dispatcher)
    order = start_job(house, gateway, "sh", "-c", 'echo hello; echo \'{"level":"warn","x":1}\'')
    agent = house.agent(order, gateway)

    assert agent.exit_code() == 0, agent.log()
    house.await_state(order.row.agent_id, SpawnState.DESTROYING)
    seen = client.get("/v1/requests/job-1").json()
    assert seen["state"] == "succeeded"
    assert seen["result"]["exitCode"] == 0
    assert seen["agentId"] == order.row.agent_id
    assert lines_of(log_of(client, "job-1")) == ["hello", '{"level":"warn","x":1}']


def test_output_goes_to_the_log_system_and_is_kept_with_the_outcome(house: House) -> None:
    gateway = house.gateway()
    order = start_job(house, gateway, "sh", "-c", 'echo hello; echo \'{"level":"warn","x":1}\'')
    agent = house.agent(order, gateway)
    assert agent.exit_code() == 0, agent.log()

    eventually(lambda: len(gateway.lines()) == 2)
    origin = {
        "service": "agent", "agentId": order.row.agent_id, "jobId": "job-1",
        "runId": "run-of-job-1", "logsSource": "bare-metal",
    }  # fmt: skip
    assert gateway.lines() == [
        {"level": "info", "message": "hello", **origin},
        {"level": "warn", "x": 1, **origin},
    ]
    story = house.client(gateway).get(f"/v1/agents/{order.row.agent_id}").json()
    assert story["outcome"]["logTail"] == ["hello", '{"level":"warn","x":1}']
    assert set(story["agent"]["timings"]) >= {"reserved", "booting", "idle", "busy", "destroying"}
    assert [each["type"] for each in story["events"]] == ["agent.connecting", "request.finished"]


def test_the_kept_lines_stand_in_for_a_lost_stream(house: House) -> None:
    gateway = house.gateway()
    client = house.client(gateway, house.dispatcher)
    order = start_job(house, gateway, "echo", "kept")
    assert house.agent(order, gateway).exit_code() == 0
    house.flush_redis()
    assert lines_of(log_of(client, "job-1")) == ["kept"]


def test_a_log_is_followed_from_before_the_job_began_to_its_end(house: House) -> None:
    gateway = house.gateway()
    client = house.client(gateway, house.dispatcher)
    order = start_job(house, gateway, "sh", "-c", "echo one; read never || true; echo two")
    with client.stream("GET", "/v1/requests/job-1/log") as response:
        agent = house.agent(order, gateway)
        records = [json.loads(line) for line in response.iter_lines() if line.strip()]
    assert lines_of(records) == ["one", "two"]
    assert agent.exit_code() == 0
    later = log_of(client, "job-1", after=str(records[0]["seq"]))
    assert lines_of(later) == lines_of(records[1:])


def test_a_failing_command_fails_the_job_with_its_code(house: House) -> None:
    gateway = house.gateway()
    order = start_job(house, gateway, "sh", "-c", "exit 3")
    assert house.agent(order, gateway).exit_code() == 0
    house.await_job("job-1", "failed")
    seen = house.client(gateway).get("/v1/requests/job-1").json()
    assert (seen["result"]["status"], seen["result"]["exitCode"]) == ("failed", 3)


def test_a_running_job_is_cancelled(house: House) -> None:
    gateway = house.gateway()
    client = house.client(gateway, house.dispatcher)
    order = start_job(house, gateway, "sleep", "300")
    agent = house.agent(order, gateway)
    house.await_job("job-1", "running")

    answer = client.post("/v1/requests/job-1/cancel", json={"reason": "not wanted"})
    assert answer.json() == {"jobId": "job-1", "state": "running"}
    assert agent.exit_code() == 0
    house.await_job("job-1", "cancelled")
    seen = client.get("/v1/requests/job-1").json()
    assert (seen["reason"], seen["result"]["error"]) == ("not wanted", "not wanted")


def test_a_job_whose_agent_waits_for_it_is_cancelled_with_its_agent(house: House) -> None:
    gateway = house.gateway()
    client = house.client(gateway, house.dispatcher)
    client.post("/v1/requests", json=house.body("job-1"))
    (order,) = house.take()
    assert client.post("/v1/requests/job-1/cancel").json()["state"] == "cancelled"
    assert house.agent(order, gateway).exit_code() == 0
    assert house.job_state("job-1") == "cancelled"


def test_a_payload_sealed_to_another_key_fails_the_job_with_the_cause(house: House) -> None:
    gateway = house.gateway()
    client = house.client(gateway, house.dispatcher)
    sealed = seal(generate_key().public, b'{"command": ["true"]}')
    client.post("/v1/requests", json=house.body("job-1") | {"payload": sealed.as_json()})
    (order,) = house.take()
    assert house.agent(order, gateway).exit_code() == 0
    house.await_job("job-1", "failed")
    reason = client.get("/v1/requests/job-1").json()["reason"]
    assert "which this cluster does not have" in reason


def test_a_payload_that_is_no_job_fails_the_job_with_the_cause(house: House) -> None:
    gateway = house.gateway()
    client = house.client(gateway, house.dispatcher)
    sealed = seal(house.seal_keys.newest.public, b'{"command": "not a list"}')
    client.post("/v1/requests", json=house.body("job-1") | {"payload": sealed.as_json()})
    (order,) = house.take()
    assert house.agent(order, gateway).exit_code() == 0
    house.await_job("job-1", "failed")
    assert "payload.command" in client.get("/v1/requests/job-1").json()["reason"]


def test_an_operator_tears_a_busy_agent_down(house: House) -> None:
    gateway = house.gateway()
    client = house.client(gateway)
    order = start_job(house, gateway, "sleep", "300")
    agent = house.agent(order, gateway)
    house.await_job("job-1", "running")

    answer = client.post(f"/v1/agents/{order.row.agent_id}/destroy")
    assert answer.json() == {"agentId": order.row.agent_id, "state": "destroying"}
    assert agent.exit_code() == 0
    seen = client.get("/v1/requests/job-1").json()
    assert (seen["state"], seen["reason"]) == ("failed", "destroyed by an operator (key op)")
    assert house.scalar("SELECT action FROM audit WHERE actor = 'key op'") == "agent.destroy"
