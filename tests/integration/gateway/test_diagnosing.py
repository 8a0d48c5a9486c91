"""How the cluster does, and one agent's way through it, as an operator asks."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from kici_scaler.agent.protocol import JobFinishedAck
from kici_scaler.cli.main import app
from kici_scaler.errors import ExitCode, KiciError
from kici_scaler.service import admit, operate, start, sweep
from tests.integration.gateway.house import GatewayProcess, House, job_of
from tests.integration.gateway.played_agent import played

Cli = Callable[..., Result]


@pytest.fixture
def cli(shared: House, gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line with an operator's key."""
    monkeypatch.setenv("KICI_URL", gateway.url)
    monkeypatch.setenv("KICI_API_KEY", shared.operator)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_a_timeline_tells_each_state_how_long_it_lasted_and_what_happened(
    shared: House, gateway: GatewayProcess, cli: Cli
) -> None:
    order = shared.order(gateway)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job_of(order))
        running = cli("timeline", order.row.agent_id)
        agent.finish(job_of(order))
        agent.expect(JobFinishedAck)
    ended = cli("timeline", order.row.agent_id)
    assert running.exit_code == ended.exit_code == 0
    for told in ("reserved", "spawning", "booting", "idle", "busy", "agent.connecting"):
        assert told in running.output
        assert told in ended.output
    assert "destroying" in ended.output
    assert "for " in ended.output
    events = json.loads(cli("timeline", order.row.agent_id, "--json").output)["events"]
    assert [each["type"] for each in events] == ["agent.connecting", "request.finished"]


def test_a_timeline_of_nobody_is_an_error(cli: Cli) -> None:
    assert cli("timeline", "scaler-bare-metal-000000000000").exit_code != 0


def test_a_diagnosis_ends_with_what_it_found(
    shared: House, gateway: GatewayProcess, cli: Cli
) -> None:
    healthy = cli("diagnose")
    assert healthy.exit_code == 0, healthy.output
    assert "0 spawn failures in last 5m" in healthy.output
    order = shared.order(gateway)
    with played(gateway.agents_url, order):
        operate.destroy(shared.runtime, order.row.agent_id, actor="test")
    failing = next(iter(_taken_without_agent(shared, gateway)))
    start.record_failure(shared.runtime, failing, "no such image")
    found = cli("diagnose", "--json")
    assert found.exit_code == 1, found.output
    rows = {row["name"]: row for row in json.loads(found.output)["rows"]}
    assert rows["scaler:local"]["health"] == "fail"
    assert "no such image" in rows["scaler:local"]["message"]
    assert rows["scaler:local"]["details"]["boundCount"] == 1


def _taken_without_agent(house: House, gateway: GatewayProcess) -> list[start.StartOrder]:
    body = house.body(house.new_job())
    house.client(gateway).post("/v1/requests", json=body)
    orders, _ = start.take(house.runtime, backend_type="bare-metal", machine_id="m1", most=50)
    return orders


def test_after_a_failover_of_the_database_resume_lets_things_go_on(
    shared: House, gateway: GatewayProcess, cli: Cli
) -> None:
    assert "nothing was held back" in cli("resume").output
    shared.scalar("UPDATE server_identity SET identity = 'another/00000001' RETURNING 1")
    held = cli("diagnose")
    assert held.exit_code == 1
    assert "failed over" in held.output
    assert "failed over" in cli("status").output
    job_id = shared.new_job()
    body = shared.body(job_id)
    answer = shared.client(gateway).post("/v1/requests", json=body).json()
    assert (answer["result"], answer["state"]) == ("skipped", "waiting")
    assert "go on" in cli("resume").output
    shared.scalar("DELETE FROM scaler_states RETURNING 1")  # what another test made it back off
    admit.run_pass(shared.runtime)
    assert shared.job_state(job_id) == "assigned"


def test_without_a_gateway_the_rows_are_asked(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KICI_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("KICI_API_KEY", "none")
    monkeypatch.setenv("KICI_DATABASE_URL", house.database_url)
    house.scalar(
        "INSERT INTO gateways (incarnation, host, pid, started_at, last_heartbeat) VALUES"
        " ('gone', 'h', 1, clock_timestamp() - interval '1 h', clock_timestamp() - interval '1 h')"
        " RETURNING 1"
    )
    sweep.sweep(house.runtime)
    found = CliRunner().invoke(app, ["diagnose", "--json"])
    assert found.exit_code == 1, found.output
    rows = {row["name"]: row for row in json.loads(found.stdout)["rows"]}
    assert rows["watch"]["health"] == "fail"
    assert "no gateway lives" in rows["watch"]["message"]


def test_without_a_gateway_nothing_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KICI_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("KICI_API_KEY", "none")
    found = CliRunner().invoke(app, ["diagnose"]).exception
    assert isinstance(found, KiciError)
    assert found.exit_code is ExitCode.UNREADABLE
