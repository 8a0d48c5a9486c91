"""What a gateway logs says of which request, key or agent it is, and holds no secret."""

from __future__ import annotations

import json
from typing import Any

from kici_scaler.agent.protocol import CloseCode
from tests.integration.gateway.house import GatewayProcess, House
from tests.integration.gateway.played_agent import played
from tests.support.waiting import eventually, free_port


def _lines(gateway: GatewayProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gateway.log().splitlines()]


def _line(gateway: GatewayProcess, **wanted: str) -> dict[str, Any]:
    """The first line that has these fields."""
    return eventually(
        lambda: next((each for each in _lines(gateway) if wanted.items() <= each.items()), {}),
        20,
        why=gateway.log,
    )


def test_what_a_request_causes_is_logged_with_its_id_and_key(house: House) -> None:
    nobody = f"redis://:hidden-password@127.0.0.1:{free_port()}/0"
    gateway = house.gateway(environment={"KICI_REDIS_URL": nobody})
    client = house.client(gateway)
    body = house.body("job-1", "echo", "hidden-command")
    answer = client.post("/v1/requests", json=body, headers={"X-Request-Id": "asked-1"})
    assert answer.status_code == 201
    assert answer.headers["x-request-id"] == "asked-1"
    found = _line(gateway, request_id="asked-1")
    assert (found["method"], found["path"], found["key"]) == ("POST", "/v1/requests", "op")
    assert found["role"] == "gateway"
    own = [each for each in _lines(gateway) if each["event"].startswith("gateway ")]
    assert own
    assert not [each for each in own if {"request_id", "key"} & each.keys()]
    for secret in (house.operator, "hidden-password", "hidden-command", body["payload"]["sealed"]):
        assert secret not in gateway.log()


def test_an_error_inside_is_logged_with_the_id_that_the_caller_was_told(house: House) -> None:
    gateway = house.gateway()
    with house.runtime.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE audit RENAME TO elsewhere")
    answer = house.client(gateway).get("/v1/audit")
    assert answer.status_code == 500
    found = _line(gateway, request_id=answer.headers["x-request-id"])
    assert found["level"] == "error"
    assert found["path"] == "/v1/audit"
    assert "elsewhere" not in answer.text


def test_a_refused_agent_is_logged_with_its_connection_and_without_its_token(
    shared: House, gateway: GatewayProcess
) -> None:
    order = shared.order(gateway)
    with played(gateway.agents_url, order) as agent:
        agent.say(agent.greeting(token="hidden-token"))
        assert agent.closed() == CloseCode.REFUSED
    found = _line(gateway, event="agent refused", agent=order.row.agent_id)
    assert found["address"] == "127.0.0.1"
    assert len(found["connection_id"]) == 16
    assert not {"request_id", "key"} & found.keys()
    assert "hidden-token" not in gateway.log()
    assert order.agent_token not in gateway.log()


def test_an_agent_that_breaks_the_protocol_is_named_and_the_next_is_another(
    shared: House, gateway: GatewayProcess
) -> None:
    connections = set()
    for _ in range(2):
        order = shared.order(gateway)
        with played(gateway.agents_url, order) as agent:
            agent.register()
            agent.say(agent.greeting())
            assert agent.closed() == CloseCode.PROTOCOL_VIOLATION
        found = _line(gateway, event="agent broke the protocol", agent=order.row.agent_id)
        connections.add(found["connection_id"])
    assert len(connections) == 2
