"""After a failover of the database nothing is admitted or reclaimed until a person says so."""

from __future__ import annotations

import pytest

from kici_scaler.domain.request import RequestState, Result
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.errors import Unavailable
from kici_scaler.service import (
    admit,
    claim,
    diagnose,
    failover,
    fill,
    inventory,
    operations,
    register,
    status,
    sweep,
)
from kici_scaler.service.hello import Hello, Refusal, Refused
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import failovers
from tests.integration.service import work
from tests.support.rows import Rows

S = SpawnState
LOST = "scaler-bare-metal-00000000f00d"

pytestmark = pytest.mark.usefixtures("one_place")


@pytest.fixture(autouse=True)
def _failed_over(rows: Rows) -> None:
    """The server is another than the one that was known."""
    rows.call(failovers.note)
    rows.execute("UPDATE server_identity SET identity = 'another/00000001'")


def test_a_request_waits_and_says_why_until_a_person_lets_it_go_on(
    runtime: Runtime, rows: Rows
) -> None:
    (answer,) = work.until_answered(runtime, [work.body("job", "linux")])
    assert (answer.result, answer.state) == (Result.SKIPPED, RequestState.WAITING)
    assert "kici-scaler resume" in answer.reason
    admit.run_pass(runtime)
    assert rows.count("spawns") == 0
    assert operations.resume(runtime, actor="test")
    admit.run_pass(runtime)
    assert rows.get("scale_requests", "job")["state"] == "assigned"
    assert rows.count("audit", "action = 'resume'") == 1
    assert not operations.resume(runtime, actor="test")


def test_no_ready_agent_is_ended_or_started_for_a_pool(runtime: Runtime, rows: Rows) -> None:
    agent = rows.spawn(S.IDLE)
    rows.gateway()
    rows.agent(agent)
    assert fill.fill(runtime).ended == 0
    assert rows.get("spawns", agent)["state"] == "idle"


def test_an_agent_without_a_row_is_told_to_come_back_and_not_that_it_is_nobodys(
    runtime: Runtime, rows: Rows
) -> None:
    rows.gateway()
    hello = Hello(LOST, ("linux",), 1, token="secret")
    answer = register.register(runtime, "gw-1", hello)
    assert isinstance(answer, Refused)
    assert answer.why is Refusal.FOR_NOW
    operations.resume(runtime, actor="test")
    answer = register.register(runtime, "gw-1", hello)
    assert isinstance(answer, Refused)
    assert answer.why is Refusal.UNOWNED


def test_a_claim_that_may_be_lost_is_asked_for_again(runtime: Runtime) -> None:
    with pytest.raises(Unavailable, match="failed over"):
        claim.redeem(runtime, "code", address="somewhere")
    operations.resume(runtime, actor="test")
    assert claim.redeem(runtime, "code", address="somewhere") is claim.ClaimFailure.INVALID


def test_compute_without_a_row_is_left_alone(runtime: Runtime) -> None:
    assert inventory.without_row(runtime, [LOST]) == frozenset()
    operations.resume(runtime, actor="test")
    assert inventory.without_row(runtime, [LOST]) == {LOST}


def test_what_is_known_goes_on_to_its_end(runtime: Runtime, rows: Rows) -> None:
    rows.gateway()
    sweep.sweep(runtime)
    agent, _ = rows.busy(due=-1)
    rows.agent(agent)
    rows.shift("spawns", agent, deadline_at=-1.0)
    rows.execute("UPDATE duties SET ticked_at = ticked_at - interval '1 s'")
    assert sweep.sweep(runtime).ended == 1


def _tick(runtime: Runtime, rows: Rows) -> bool:
    """A sweep; whether things are held back after it."""
    rows.execute("UPDATE duties SET ticked_at = ticked_at - interval '1 s' WHERE duty = 'sweep'")
    sweep.sweep(runtime)
    return bool(rows.call(failovers.is_held))


def _listed(runtime: Runtime, machine: str, *agents: str) -> None:
    inventory.compare(runtime, agents, backend_type="bare-metal", machine_id=machine)


def test_things_go_on_by_themselves_once_every_machine_agrees(runtime: Runtime, rows: Rows) -> None:
    rows.machine("m2")
    _listed(runtime, "m2")
    assert _tick(runtime, rows), "a list from before the change was noted says nothing"
    known = rows.spawn(S.BOOTING)
    _listed(runtime, "m1", known)
    assert _tick(runtime, rows), "m2 was not listed since"
    _listed(runtime, "m2", LOST)
    assert _tick(runtime, rows), "m2 holds what no row stands for"
    (told,) = [row for row in diagnose.diagnosis(runtime) if row.name == "database"]
    assert "machine `m2` (bare-metal) holds 1 agents that no row stands for" in told.message
    assert "m1" not in told.message
    _listed(runtime, "m2")
    assert not _tick(runtime, rows)
    assert rows.one("SELECT actor FROM audit WHERE action = 'resume'") == failover.BY_ITSELF


def test_where_nobody_can_list_the_compute_a_person_has_to_say_so(
    runtime: Runtime, rows: Rows
) -> None:
    rows.spawn(S.BOOTING, backend_type="event", machine_id=None)
    assert _tick(runtime, rows)
    _listed(runtime, "m1")
    assert _tick(runtime, rows)
    (told,) = [row for row in diagnose.diagnosis(runtime) if row.name == "database"]
    assert "event scalers have no machine" in told.message


def test_diagnosis_and_status_say_so(runtime: Runtime, rows: Rows) -> None:
    (told,) = [row for row in diagnose.diagnosis(runtime) if row.name == "database"]
    assert told.health == "fail"
    assert "kici-scaler resume" in told.message
    assert status.read(runtime).held_back
    sweep.sweep(runtime)
    (told,) = [row for row in diagnose.diagnosis(runtime) if row.name == "database"]
    assert "held back since" in told.message
    operations.resume(runtime, actor="test")
    (told,) = [row for row in diagnose.diagnosis(runtime) if row.name == "database"]
    assert told.health == "pass"
