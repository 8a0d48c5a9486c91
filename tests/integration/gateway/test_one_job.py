"""One job through a real gateway and a real agent."""

from __future__ import annotations

from kici_scaler.domain.spawn import SpawnState
from tests.integration.gateway.house import House


def test_a_job_is_requested_run_and_reported(house: House) -> None:
    gateway = house.gateway()
    client = house.client(gateway, house.dispatcher)
    body = house.body("job-1", "sh", "-c", 'echo hello; echo \'{"level":"warn","x":1}\'')

    answer = client.post("/v1/requests", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["result"] == "spawning"

    (order,) = house.take()
    agent = house.agent(order, gateway)

    assert agent.exit_code() == 0, agent.log()
    house.await_state(order.row.agent_id, SpawnState.DESTROYING)
    seen = client.get("/v1/requests/job-1").json()
    assert seen["state"] == "succeeded"
    assert seen["result"]["exitCode"] == 0
