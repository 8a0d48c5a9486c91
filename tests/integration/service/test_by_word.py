"""Rows that go by a person's word, and what is told about how the cluster does."""

from __future__ import annotations

import pytest

from kici_scaler.domain.diagnosis import Health, Row
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.errors import Conflict, NotFound
from kici_scaler.service import diagnose, force
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import outcomes
from tests.support.rows import MACHINE, Rows

S = SpawnState

pytestmark = pytest.mark.usefixtures("one_place")


@pytest.mark.parametrize("state", [S.DESTROYING, S.QUARANTINED])
def test_a_quarantined_agent_goes_by_a_persons_word(
    runtime: Runtime, rows: Rows, state: SpawnState
) -> None:
    agent = rows.spawn(state)
    rows.call(outcomes.record, [agent])
    force.forget_agent(runtime, agent, actor="eve")
    assert rows.count("spawns") == 0
    outcome = rows.call(outcomes.find, agent)
    assert outcome.gone_at is not None
    assert outcome.exit_cause == {"kind": "said-to-be-gone"}
    assert rows.one("SELECT actor FROM audit WHERE action = 'agent.forget'") == "eve"


def test_a_live_agent_is_forgotten_with_the_consequences_for_its_job(
    runtime: Runtime, rows: Rows
) -> None:
    agent, job = rows.busy()
    force.forget_agent(runtime, agent, actor="eve")
    row = rows.get("scale_requests", job)
    assert row["state"] == "failed"
    assert "said to be gone" in row["result"]["error"]
    assert rows.count("spawns") == 0


def test_what_a_worker_acts_on_is_not_forgotten_under_its_hands(
    runtime: Runtime, rows: Rows
) -> None:
    agent = rows.spawn(S.DESTROYING, lease_holder="w", lease_token=1, lease_expires_at="infinity")
    with pytest.raises(Conflict, match="acts on"):
        force.forget_agent(runtime, agent, actor="eve")
    assert rows.count("spawns") == 1


def test_whom_nobody_knows_cannot_be_forgotten(runtime: Runtime) -> None:
    with pytest.raises(NotFound):
        force.forget_agent(runtime, "scaler-bare-metal-000000000000", actor="eve")
    with pytest.raises(NotFound):
        force.forget_machine(runtime, "nowhere", actor="eve")


def test_a_machine_that_is_gone_takes_its_agents_along(runtime: Runtime, rows: Rows) -> None:
    _, running = rows.busy()
    offered = rows.request(state="assigned")
    rows.spawn(S.BOOTING, job=offered)
    rows.spawn(S.QUARANTINED)
    rows.spawn(S.RESERVED)
    rows.machine("m2")
    elsewhere = rows.spawn(S.BOOTING, machine_id="m2")
    rows.shift("machines", MACHINE, last_heartbeat=-60.0)
    assert force.forget_machine(runtime, MACHINE, actor="eve") == 4
    assert [row.agent_id for row in rows.all("SELECT agent_id FROM spawns")] == [elsewhere]
    assert [row.machine_id for row in rows.all("SELECT machine_id FROM machines")] == ["m2"]
    assert rows.get("scale_requests", running)["state"] == "failed"
    assert rows.get("scale_requests", offered)["state"] == "waiting"


def test_a_machine_that_was_heard_of_lately_is_not_gone(runtime: Runtime, rows: Rows) -> None:
    rows.spawn(S.BOOTING)
    with pytest.raises(Conflict, match="heard of lately"):
        force.forget_machine(runtime, MACHINE, actor="eve")
    assert rows.count("spawns") == 1


def _diagnosis(runtime: Runtime) -> dict[str, Row]:
    return {row.name: row for row in diagnose.diagnosis(runtime)}


def _failed(rows: Rows, *, scaler: str, job: str | None, why: str = "no such image") -> None:
    agent = rows.spawn(S.DESTROYING, scaler=scaler, job=job, condemned_why=why)
    rows.call(outcomes.record, [agent], failed=True)


def test_a_quiet_cluster_passes(runtime: Runtime) -> None:
    found = _diagnosis(runtime)
    assert {row.health for row in found.values()} == {Health.PASS}
    assert found["scaler:local"].message == "0 spawn failures in last 5m"


def test_failed_starts_warn_and_with_a_job_they_fail(runtime: Runtime, rows: Rows) -> None:
    _failed(rows, scaler="local", job=None)
    _failed(rows, scaler="roomy", job=rows.request(state="assigned"), why="x" * 500)
    found = _diagnosis(runtime)
    assert found["scaler:local"].health is Health.WARN
    bound = found["scaler:roomy"]
    assert bound.health is Health.FAIL
    assert bound.message.startswith("1 spawn failures in last 5m (1 with a job, 0 warm-pool)")
    assert bound.message.endswith("x" * 119 + "…")
    assert bound.details["boundCount"] == 1
    assert bound.details["lastAtMs"]


def test_failures_of_long_ago_count_no_more(runtime: Runtime, rows: Rows) -> None:
    _failed(rows, scaler="local", job=None)
    rows.execute("UPDATE outcomes SET updated_at = now() - interval '301 s'")
    assert _diagnosis(runtime)["scaler:local"].health is Health.PASS


def test_what_could_not_be_torn_down_fails_and_a_silent_machine_warns(
    runtime: Runtime, rows: Rows
) -> None:
    rows.spawn(S.QUARANTINED)
    rows.shift("machines", MACHINE, last_heartbeat=-60.0)
    found = _diagnosis(runtime)
    assert found["quarantined"].health is Health.FAIL
    assert found[f"machine:{MACHINE}/bare-metal"].health is Health.WARN


def test_rows_that_nobody_looks_at_fail(runtime: Runtime, rows: Rows) -> None:
    rows.spawn(S.BOOTING, due=-600)
    assert _diagnosis(runtime)["sweep"].health is Health.FAIL
