"""What an accepted configuration means for what runs, what waits, and what starts next."""

from __future__ import annotations

from typing import Any

import pytest

from kici_scaler.domain.request import Result
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import destroy, operations, reload, retention, scaler_control, start
from kici_scaler.store import retiring, scaler_states
from tests.integration.reload.yard import Document, Yard, document, scaler
from tests.support.rows import KIND, MACHINE

S = SpawnState
ROOMY = scaler("local", "linux")


def _lowered(**more: Any) -> Document:
    return document(scaler("local", "linux", **more))


LOWERED = {
    "maxAgents": _lowered(maxAgents=2),
    "resourceCap": _lowered(resourceCap={"maxCpu": 2}),
    "globalMaxAgents": document(ROOMY, globalMaxAgents=2),
    "globalResourceCap": document(ROOMY, globalResourceCap={"maxMemory": "2Gi"}),
    "machine pool": document(
        scaler("local", "linux", machinePool="box"),
        machinePools=[{"name": "box", "cap": {"maxCpu": 2}}],
    ),
}
NEED = {"cpus": 1, "memory": "1Gi"}


def _busy(yard: Yard, count: int) -> list[str]:
    """So many agents that run jobs."""
    for _ in range(count):
        yard.ask("linux", resources=NEED)
    agents = yard.start()
    for agent in agents:
        yard.connect(agent)
        assert yard.accept(agent)
    return agents


@pytest.mark.parametrize("lower", LOWERED.values(), ids=LOWERED)
def test_a_cap_lowered_below_use_kills_nothing_and_starts_nothing_until_it_fits(
    yard: Yard, lower: Document
) -> None:
    start_from = document(
        scaler("local", "linux", machinePool="box"),
        machinePools=[{"name": "box", "cap": {"maxCpu": 100}}],
    )
    yard.take_over(start_from if "machinePools" in lower else document(ROOMY))
    busy = _busy(yard, 4)
    asked_before = [yard.ask("linux", resources=NEED).job_id for _ in range(2)]
    assert len(yard.agents_in(S.RESERVED)) == 2
    yard.take_over(lower)
    assert set(yard.agents_in(S.BUSY)) == set(busy)
    assert yard.agents_in(S.RESERVED) == []
    assert yard.ask("linux", resources=NEED).result is Result.AT_CAPACITY
    for agent in busy[:2]:
        yard.finish(agent)
        assert yard.remove() == 1
        assert yard.ask("linux", resources=NEED).result is Result.AT_CAPACITY
        assert yard.start() == []
    yard.finish(busy[2])
    yard.remove()
    yard.ask("linux", resources=NEED)
    assert [yard.spawns()[agent]["job_id"] for agent in yard.start()] == asked_before[:1]
    assert not yard.history.violations()


def test_a_throttle_counts_for_what_was_reserved_under_another(yard: Yard) -> None:
    yard.reload(scaler("local", "linux", maxConcurrentSpawns=1))
    for _ in range(4):
        yard.ask("linux")
    orders, left = start.take(yard.runtime, backend_type=KIND, machine_id=MACHINE, most=100)
    assert (len(orders), left) == (1, True)
    yard.reload(scaler("local", "linux", maxConcurrentSpawns=3))
    orders, left = start.take(yard.runtime, backend_type=KIND, machine_id=MACHINE, most=100)
    assert (len(orders), left) == (2, True)
    assert not yard.unaccounted()


def test_what_starts_next_is_told_the_new_url_and_what_lives_keeps_its_own(yard: Yard) -> None:
    yard.reload(scaler("local", "linux", orchestratorUrl="ws://old/", maxConcurrentSpawns=1))
    yard.ask("linux")
    yard.ask("linux")
    (first,), _ = start.take(yard.runtime, backend_type=KIND, machine_id=MACHINE, most=100)
    yard.reload(scaler("local", "linux", orchestratorUrl="ws://new/", maxConcurrentSpawns=2))
    (second,), _ = start.take(yard.runtime, backend_type=KIND, machine_id=MACHINE, most=100)
    assert (first.scaler.orchestrator_url, second.scaler.orchestrator_url) == (
        "ws://old/",
        "ws://new/",
    )


@pytest.mark.parametrize("why", ["backs off", "paused", "draining"])
def test_nobody_loses_a_place_that_would_not_be_given_again_now(yard: Yard, why: str) -> None:
    """What is held back takes nothing new; what it gave out before is not taken away for it."""
    yard.reload(ROOMY)
    yard.ask("linux")
    if why == "backs off":
        yard.rows.call(scaler_states.count_failures, ["local"], base_seconds=300, max_seconds=900)
    elif why == "paused":
        scaler_control.pause(yard.runtime, "local", actor="me")
    else:
        operations.set_draining(yard.runtime, True, actor="me")
    before = yard.spawns()
    yard.reload(scaler("local", "linux", maxAgents=50))
    assert yard.spawns() == before


def test_a_job_that_may_not_wait_keeps_the_place_it_was_given(yard: Yard) -> None:
    yard.reload(ROOMY)
    answer = yard.ask("linux", wait=False)
    before = yard.spawns()
    yard.reload(scaler("local", "linux", maxAgents=50))
    assert yard.spawns() == before
    assert yard.holders(answer.job_id)


def test_jobs_of_a_scaler_that_left_wait_with_the_reason_when_nobody_else_serves_them(
    yard: Yard,
) -> None:
    yard.reload(ROOMY, scaler("other"))
    job = yard.ask("linux").job_id
    yard.reload(scaler("other"))
    row = yard.rows.get("scale_requests", job)
    assert (row["state"], row["wait_code"], row["requeues"]) == ("waiting", "no-backend", 0)
    assert yard.spawns() == {}
    yard.reload(ROOMY)
    yard.run_everything()


def test_a_scaler_without_agents_is_gone_at_once(yard: Yard) -> None:
    yard.reload(ROOMY, scaler("other"))
    yard.ask("linux")
    yard.reload(scaler("other"))
    assert yard.rows.call(retiring.all_retiring) == {}


def test_a_retiring_scaler_is_over_with_its_last_agent(yard: Yard) -> None:
    yard.reload(ROOMY)
    first = yard.rows.one("SELECT id FROM config_revisions WHERE active")
    one, two = _busy(yard, 2)
    yard.reload(scaler("other"))
    yard.finish(one)
    assert yard.remove() == 1
    assert yard.rows.call(retiring.all_retiring) == {"local": first}
    yard.finish(two)
    assert yard.remove() == 1
    assert yard.rows.call(retiring.all_retiring) == {}


def test_what_two_last_agents_at_the_same_moment_leave_is_found(yard: Yard) -> None:
    yard.reload(ROOMY)
    _busy(yard, 1)
    yard.reload(scaler("other"))
    yard.rows.execute("DELETE FROM spawns")
    forgotten = retention.forget(yard.runtime)
    assert forgotten is not None
    assert forgotten["scalers"] == 1
    assert yard.rows.call(retiring.all_retiring) == {}


def test_a_spawn_in_flight_of_a_scaler_that_left_may_fail_and_its_job_goes_on(
    yard: Yard,
) -> None:
    yard.reload(ROOMY, scaler("other", "linux", "more"))
    job = yard.ask("linux").job_id
    (order,), _ = start.take(yard.runtime, backend_type=KIND, machine_id=MACHINE, most=1)
    yard.reload(scaler("other", "linux", "more"))
    assert start.still_wanted(yard.runtime, order)
    start.record_failure(yard.runtime, order, "no luck")
    assert not yard.unaccounted()
    yard.ask("linux")
    (holder,) = yard.holders(job)
    assert yard.spawns()[holder]["scaler"] == "other"
    yard.run_everything()
    assert yard.rows.call(retiring.all_retiring) == {}
    assert yard.rows.get("scale_requests", job)["state"] == "succeeded"


def test_a_spawn_in_flight_of_a_scaler_that_left_may_finish_and_runs_its_job(yard: Yard) -> None:
    yard.reload(ROOMY)
    job = yard.ask("linux").job_id
    (agent,) = yard.start()
    yard.reload(scaler("other"))
    yard.connect(agent)
    assert yard.accept(agent)
    yard.finish(agent)
    assert yard.rows.get("scale_requests", job)["state"] == "succeeded"


def test_a_teardown_uses_what_its_spawn_was_made_with(yard: Yard) -> None:
    old = scaler("local", "linux", type="container", socketPath="/run/old.sock")
    yard.reload(old)
    yard.ask("linux")
    (agent,) = yard.start()
    yard.reload({**old, "socketPath": "/run/new.sock"})
    yard.connect(agent)
    assert yard.accept(agent)
    yard.finish(agent)
    (order,), _ = destroy.take(yard.runtime, backend_type="container", machine_id=MACHINE, most=10)
    assert order.options["socketPath"] == "/run/old.sock"


def test_a_scaler_that_nothing_can_serve_is_a_warning(yard: Yard) -> None:
    yard.reload(scaler("local"))
    yard.rows.execute("DELETE FROM machines WHERE backend_type = 'container'")
    engine = yard.runtime.engine
    wanted = document(scaler("local"), scaler("boxes", type="container"))
    planned = reload.plan(engine, reload.of_document(engine, wanted, "test"))
    done = yard.take_over(wanted)
    assert done.applied
    assert planned.unserved == done.unserved
    (warning,) = done.unserved
    assert "no machine serves scaler `boxes`" in warning
    assert "kici-scaler worker container" in warning


def test_a_scaler_whose_only_machine_drains_is_a_warning_too(yard: Yard) -> None:
    yard.reload(scaler("local"))
    operations.set_machine_draining(yard.runtime, MACHINE, True, actor="me")
    (warning,) = yard.reload(scaler("local"), scaler("second")).unserved
    assert "`m1` is draining" in warning


def test_the_first_configuration_warns_of_nobody(yard: Yard) -> None:
    yard.rows.execute("DELETE FROM machines")
    assert yard.reload(scaler("local")).unserved == ()
