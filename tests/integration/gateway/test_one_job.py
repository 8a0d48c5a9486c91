"""One job through a real gateway and a real agent."""

from __future__ import annotations

import json

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.sealing import generate_key, seal
from tests.integration.gateway.house import GatewayProcess, House, job_of, lines_of, log_of
from tests.support.waiting import eventually

TWO_LINES = ("sh", "-c", """echo hello; echo '{"level":"warn","x":1}'""")


def test_a_job_is_requested_run_and_reported(shared: House, gateway: GatewayProcess) -> None:
    client = shared.client(gateway, shared.dispatcher)
    order = shared.order(gateway, *TWO_LINES)
    agent = shared.agent(order, gateway)

    assert agent.exit_code() == 0, agent.log()
    shared.await_state(order.row.agent_id, SpawnState.DESTROYING)
    seen = client.get(f"/v1/requests/{job_of(order)}").json()
    assert seen["state"] == "succeeded"
    assert seen["result"]["exitCode"] == 0
    assert seen["agentId"] == order.row.agent_id
    assert lines_of(log_of(client, job_of(order))) == ["hello", '{"level":"warn","x":1}']


def test_output_goes_to_the_log_system_and_is_kept_with_the_outcome(
    shared: House, gateway: GatewayProcess
) -> None:
    order = shared.order(gateway, *TWO_LINES)
    assert shared.agent(order, gateway).exit_code() == 0

    eventually(lambda: len(gateway.lines(order.row.agent_id)) == 2)
    origin = {
        "service": "agent", "agentId": order.row.agent_id, "jobId": job_of(order),
        "runId": f"run-of-{job_of(order)}", "logsSource": "bare-metal",
    }  # fmt: skip
    assert gateway.lines(order.row.agent_id) == [
        {"level": "info", "message": "hello", **origin},
        {"level": "warn", "x": 1, **origin},
    ]
    story = shared.client(gateway).get(f"/v1/agents/{order.row.agent_id}").json()
    assert story["outcome"]["logTail"] == ["hello", '{"level":"warn","x":1}']
    assert set(story["agent"]["timings"]) >= {"reserved", "booting", "idle", "busy", "destroying"}
    assert [each["type"] for each in story["events"]] == ["agent.connecting", "request.finished"]


def test_the_kept_lines_stand_in_for_a_lost_stream(shared: House, gateway: GatewayProcess) -> None:
    client = shared.client(gateway, shared.dispatcher)
    order = shared.order(gateway, "echo", "kept")
    assert shared.agent(order, gateway).exit_code() == 0
    shared.flush_redis()
    assert lines_of(log_of(client, job_of(order))) == ["kept"]


def test_a_log_is_followed_from_before_the_job_began_to_its_end(
    shared: House, gateway: GatewayProcess
) -> None:
    client = shared.client(gateway, shared.dispatcher)
    order = shared.order(gateway, "sh", "-c", "echo one; sleep 0.5; echo two")
    with client.stream("GET", f"/v1/requests/{job_of(order)}/log") as response:
        agent = shared.agent(order, gateway)
        records = [json.loads(line) for line in response.iter_lines() if line.strip()]
    assert lines_of(records) == ["one", "two"]
    assert agent.exit_code() == 0
    later = log_of(client, job_of(order), after=str(records[0]["seq"]))
    assert lines_of(later) == lines_of(records[1:])


def test_a_failing_command_fails_the_job_with_its_code(
    shared: House, gateway: GatewayProcess
) -> None:
    order = shared.order(gateway, "sh", "-c", "exit 3")
    assert shared.agent(order, gateway).exit_code() == 0
    shared.await_job(job_of(order), "failed")
    client = shared.client(gateway)
    seen = client.get(f"/v1/requests/{job_of(order)}").json()
    assert (seen["result"]["status"], seen["result"]["exitCode"]) == ("failed", 3)
    assert seen["reason"] == "its command exited with code 3"
    shared.scalar("DELETE FROM spawns WHERE agent_id = :id RETURNING 1", id=order.row.agent_id)
    listed = client.get("/v1/requests", params={"state": "failed"}).json()["requests"]
    (listed,) = [each for each in listed if each["jobId"] == job_of(order)]
    assert listed["agentId"] == order.row.agent_id
    told = client.get("/v1/events").json()["events"]
    ends = [each["detail"] for each in told if each["jobId"] == job_of(order)]
    assert ends[-1] == "failed: its command exited with code 3"


def test_a_running_job_is_cancelled(shared: House, gateway: GatewayProcess) -> None:
    client = shared.client(gateway, shared.dispatcher)
    order = shared.order(gateway, "sleep", "300")
    agent = shared.agent(order, gateway)
    job = job_of(order)
    shared.await_job(job, "running")

    answer = client.post(f"/v1/requests/{job}/cancel", json={"reason": "not wanted"})
    assert answer.json() == {"jobId": job, "state": "running"}
    assert agent.exit_code() == 0
    shared.await_job(job, "cancelled")
    seen = client.get(f"/v1/requests/{job}").json()
    assert (seen["reason"], seen["result"]["error"]) == ("not wanted", "not wanted")


def test_a_job_whose_agent_is_still_awaited_is_cancelled_with_it(
    shared: House, gateway: GatewayProcess
) -> None:
    client = shared.client(gateway, shared.dispatcher)
    order = shared.order(gateway)
    answer = client.post(f"/v1/requests/{job_of(order)}/cancel")
    assert answer.json()["state"] == "cancelled"
    assert shared.agent(order, gateway).exit_code() == 0
    assert shared.job_state(job_of(order)) == "cancelled"


def test_a_payload_sealed_to_another_key_fails_the_job_with_the_cause(
    shared: House, gateway: GatewayProcess
) -> None:
    sealed = seal(generate_key().public, b'{"command": ["true"]}')
    order = shared.order(gateway, payload=sealed.as_json())
    assert shared.agent(order, gateway).exit_code() == 0
    shared.await_job(job_of(order), "failed")
    seen = shared.client(gateway).get(f"/v1/requests/{job_of(order)}").json()
    assert "which this cluster does not have" in seen["reason"]


def test_a_payload_that_is_no_job_fails_the_job_with_the_cause(
    shared: House, gateway: GatewayProcess
) -> None:
    sealed = seal(shared.seal_keys.newest.public, b'{"command": "not a list"}')
    order = shared.order(gateway, payload=sealed.as_json())
    assert shared.agent(order, gateway).exit_code() == 0
    shared.await_job(job_of(order), "failed")
    seen = shared.client(gateway).get(f"/v1/requests/{job_of(order)}").json()
    assert "payload.command" in seen["reason"]


def test_an_operator_tears_a_busy_agent_down(shared: House, gateway: GatewayProcess) -> None:
    client = shared.client(gateway)
    order = shared.order(gateway, "sleep", "300")
    agent = shared.agent(order, gateway)
    shared.await_job(job_of(order), "running")

    answer = client.post(f"/v1/agents/{order.row.agent_id}/destroy")
    assert answer.json() == {"agentId": order.row.agent_id, "state": "destroying"}
    assert agent.exit_code() == 0
    seen = client.get(f"/v1/requests/{job_of(order)}").json()
    assert (seen["state"], seen["reason"]) == ("failed", "destroyed by an operator (key op)")
    found = shared.scalar("SELECT action FROM audit WHERE subject = :id", id=order.row.agent_id)
    assert found == "agent.destroy"
