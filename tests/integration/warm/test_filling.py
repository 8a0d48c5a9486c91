"""A pool is kept at its size, within every cap, and after everybody who waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import structlog.testing

from kici_scaler.domain import warm_plan
from kici_scaler.domain.request import Result
from kici_scaler.service import admit, operations, start, sweep, warm_status
from kici_scaler.service.ports import NoHints
from kici_scaler.store import agents, scaler_states
from kici_scaler.store.scaler_states import ScalerStanding
from tests.integration.warm.site import GATEWAY, Site, label_set, scaler
from tests.support.rows import KIND, MACHINE

TWO = [label_set("linux"), label_set("linux", "gpu")]


def _pool(site: Site, number: int = 0) -> warm_status.PoolStatus:
    return warm_status.read(site.runtime).pools[number]


def test_the_first_pass_reserves_what_is_missing_and_the_next_nothing(site: Site) -> None:
    site.configure(scaler("a", *TWO, size=3))
    assert site.fill().spawned == 6
    assert site.fill().spawned == 0
    site.start()
    assert site.fill().spawned == 0
    assert site.states() == {"idle": 6}
    rows = site.rows.all("SELECT warm, job_id, label_set_digest FROM spawns")
    assert {(row.warm, row.job_id) for row in rows} == {(True, None)}
    assert len({row.label_set_digest for row in rows}) == 2


def test_a_large_pool_is_filled_in_passes_that_call_for_each_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noted(NoHints):
        fills = 0

        def fill(self, *, soon: bool = False) -> None:
            self.fills += 1

    monkeypatch.setattr(warm_plan, "MOST_FILLS", 5)
    hints = Noted()
    site.runtime = replace(site.runtime, hints=hints)
    site.configure(scaler("a", *TWO, size=6))
    hints.fills = 0

    assert [site.fill().spawned for _ in range(4)] == [5, 5, 2, 0]
    assert hints.fills == 2
    assert {pool.short for pool in warm_status.read(site.runtime).pools} == {0}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"maxAgents": 4}, 4),
        ({"resourceCap": {"maxCpu": 5}}, 5),
        ({"resourceCap": {"maxMemory": "3Gi"}}, 3),
        ({"globalMaxAgents": 4}, 4),
        ({"globalResourceCap": {"maxCpu": 7}}, 7),
        ({"machinePool": "p", "machinePools": [{"name": "p", "cap": {"maxCpu": 2}}]}, 2),
    ],
)
def test_every_cap_counts_and_is_shared_by_the_label_sets(
    site: Site, limits: dict[str, Any], expected: int
) -> None:
    own = {key: limits.pop(key) for key in ("maxAgents", "resourceCap", "machinePool")
           if key in limits}  # fmt: skip
    site.configure(scaler("a", *TWO, size=5, **own), **limits)
    assert site.fill().spawned == expected
    assert site.fill().spawned == 0
    each = site.rows.all("SELECT count(*) FROM spawns GROUP BY label_set")
    counts = sorted(row[0] for row in each)
    assert sum(counts) == expected
    assert counts[-1] - counts[0] <= 1
    pools = warm_status.read(site.runtime).pools
    assert sum(pool.short for pool in pools) == 10 - expected
    assert all(pool.why for pool in pools if pool.short)


def test_an_agent_that_was_given_a_job_is_replaced_by_the_next_pass(site: Site) -> None:
    site.configure(scaler("a", size=2))
    site.settle()
    site.request("a")
    assert site.fill().spawned == 1


def test_whoever_is_absent_comes_or_goes_counts_toward_the_target(site: Site) -> None:
    site.configure(scaler("a", size=4))
    site.settle()
    absent, ending, *_ = site.idle()
    site.rows.call(agents.disconnect, gateway=GATEWAY, connections=[(absent, 1)], settle_seconds=2)
    site.rows.execute(
        "UPDATE spawns SET state = 'destroying', destroy_reason = 'idle', due_at = now(),"
        " destroying_at = now() WHERE agent_id = :id",
        id=ending,
    )
    assert site.fill().spawned == 0
    assert (_pool(site).ready, _pool(site).absent, _pool(site).ending) == (2, 1, 1)
    site.remove()
    assert site.fill().spawned == 1


def test_what_was_given_a_job_and_ends_counts_no_more(site: Site) -> None:
    site.configure(scaler("a", size=1, maxAgents=9))
    site.settle()
    site.request("a")
    site.settle()
    site.rows.execute(
        "UPDATE spawns SET state = 'destroying', destroy_reason = 'job-complete',"
        " due_at = now(), destroying_at = now() WHERE job_id IS NOT NULL"
    )
    assert site.fill().spawned == 0
    assert (_pool(site).ready, _pool(site).ending) == (1, 0)


@pytest.mark.parametrize("how", ["paused", "degraded", "backing off", "draining", "no machine"])
def test_nothing_is_started_where_nothing_may_be_and_it_is_said_why(site: Site, how: str) -> None:
    site.configure(scaler("a", size=2))
    match how:
        case "paused" | "degraded":
            site.rows.call(scaler_states.stand, "a", ScalerStanding(how), reason="broken disk")
        case "backing off":
            site.rows.call(scaler_states.count_failures, ["a"], base_seconds=60, max_seconds=60)
        case "draining":
            operations.set_draining(site.runtime, True, actor="test")
        case "no machine":
            site.rows.execute("DELETE FROM machines")
    assert site.fill().spawned == 0
    pool = _pool(site)
    assert pool.short == (0 if how == "draining" else 2)
    said = {"backing off": "backs off", "no machine": "no machine serves"}.get(how, how)
    assert said in pool.why


def test_a_failing_pool_backs_off_and_its_slots_are_free_again(site: Site) -> None:
    site.configure(scaler("a", size=2))
    site.fill()
    orders, _ = start.take(site.runtime, backend_type=KIND, machine_id=MACHINE, most=9)
    for order in orders:
        start.record_failure(site.runtime, order, "the disk is full")
    assert site.states() == {"destroying": 2}
    site.remove()
    assert site.fill().spawned == 0
    assert "backs off" in _pool(site).why
    site.rows.execute("UPDATE scaler_states SET backoff_until = now() - '1s'::interval")
    assert site.fill().spawned == 1
    assert "one start has to succeed" in _pool(site).why
    assert site.fill().spawned == 0
    site.rows.call(scaler_states.clear_failures, "a")
    assert site.fill().spawned == 1


def test_an_agent_that_never_registers_frees_its_slot(site: Site) -> None:
    site.configure(scaler("a", size=1))
    site.fill()
    (order,), _ = start.take(site.runtime, backend_type=KIND, machine_id=MACHINE, most=9)
    start.record_created(site.runtime, order, {"pid": "1"}, ())
    site.rows.shift("spawns", order.row.agent_id, deadline_at=-1, due_at=-1)
    sweep.sweep(site.runtime)
    site.remove()
    site.rows.execute("DELETE FROM scaler_states")
    assert site.fill().spawned == 1


CAP = {"maxCpu": 4}


@pytest.mark.parametrize(
    ("own", "top", "waits_for"),
    [
        ({"resourceCap": CAP}, {}, "a"),
        ({"machinePool": "p"}, {"machinePools": [{"name": "p", "cap": CAP}]}, "b"),
        ({}, {"globalResourceCap": CAP}, "b"),
    ],
)
def test_a_pool_asks_for_nothing_that_a_waiting_job_could_use(
    site: Site, own: dict[str, Any], top: dict[str, Any], waits_for: str
) -> None:
    site.configure(scaler("a", label_set("a"), size=3, **own), scaler("b", **own), **top)
    site.rows.spawn(
        scaler=waits_for, pool=own.get("machinePool"), job=site.rows.request(state="assigned")
    )
    large = site.request(waits_for, resources={"cpus": 4})
    assert large.result is Result.AT_CAPACITY
    assert site.fill().spawned == 0
    assert _pool(site).short == 3

    site.rows.execute("UPDATE scale_requests SET state = 'cancelled', sealed_payload = NULL,"
                      " finished_at = now() WHERE state = 'waiting'")  # fmt: skip
    assert site.fill().spawned == 3


def test_a_pool_that_shares_nothing_with_a_waiting_job_is_filled(site: Site) -> None:
    site.configure(scaler("a", size=2), scaler("b", maxAgents=1), globalMaxAgents=6)
    for _ in range(2):
        site.request("b")
    assert site.fill().spawned == 2


def test_a_pool_that_shares_nothing_leaves_what_the_waiting_job_will_need(site: Site) -> None:
    site.configure(scaler("a", size=5), scaler("b", maxAgents=1), globalMaxAgents=5)
    for _ in range(3):
        site.request("b")
    assert site.fill().spawned == 5 - 3


@pytest.mark.parametrize(
    ("label_sets", "why"),
    [([{"labels": ["x"], "binaryPath": "builtin:agent"}], "no declared shape"),
     ([{"labels": ["x"], "image": "agent", "resources": {"cpus": 1}}], "image of their own")],
)  # fmt: skip
def test_a_pool_that_cannot_work_is_inert_says_so_and_warns_once(
    site: Site, label_sets: list[dict[str, Any]], why: str
) -> None:
    site.configure(scaler("a", *label_sets, size=2), scaler("b", size=1))
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            site.fill()
    assert site.states() == {"reserved": 1}
    pool = _pool(site)
    assert (pool.target, pool.short, pool.size) == (0, 0, 2)
    assert why in pool.why
    warnings = [each for each in logs if each["log_level"] == "warning"]
    assert [(each["event"], each["scaler"]) for each in warnings] == [
        ("warm pool stays empty", "a")
    ]


def test_connected_agents_that_no_scaler_made_count_as_ready(site: Site) -> None:
    site.configure(scaler("a", label_set("linux"), size=3))
    site.rows.agent("static-1", spawn_id=None, labels=["linux", "extra"])
    site.rows.agent("static-2", spawn_id=None, labels=["other"])
    site.rows.agent("static-3", spawn_id=None, labels=["linux", "gpu"], gate=["gpu"])
    assert site.fill().spawned == 2
    assert _pool(site).static == 1


def test_reservations_go_to_the_machine_with_the_fewest_agents(site: Site) -> None:
    site.rows.machine("m2")
    site.configure(scaler("a", size=6))
    site.fill()
    counts = site.rows.all("SELECT machine_id, count(*) AS held FROM spawns GROUP BY 1")
    assert {(row.machine_id, row.held) for row in counts} == {("m1", 3), ("m2", 3)}


def test_without_pools_nobody_looks_for_ready_agents_and_nothing_happens(site: Site) -> None:
    site.configure(scaler("a"))
    done = site.fill()
    assert (done.spawned, done.ended, done.short) == (0, 0, 0)
    assert warm_status.read(site.runtime).pools == ()


def test_a_pass_decides_the_jobs_that_wait_before_it_fills(site: Site) -> None:
    site.configure(scaler("a", size=2, maxAgents=2))
    site.rows.request(labels=["a"])
    done = site.fill()
    assert (done.decided.admitted, done.spawned) == (1, 1)


def test_pools_of_compute_without_machines_are_kept_as_well(site: Site) -> None:
    event = {
        "provisioningTargets": ["https://example.test/hook"],
        "platform": {"os": "linux", "arch": "x64"},
    }
    label_sets = {"labels": ["cloud"], "resources": {"cpus": 1}}
    site.configure(scaler("a", label_sets, size=2, type="event", maxAgents=1, **event))
    assert site.fill().spawned == 1
    (row,) = site.rows.all("SELECT machine_id, warm, targets FROM spawns")
    assert (row.machine_id, row.warm, row.targets) == (None, True, event["provisioningTargets"])
    assert "holds 1 of its 1 agents" in _pool(site).why


def test_jobs_behind_a_scaler_that_backs_off_have_pools_looked_at_no_more_than_once(
    site: Site,
) -> None:
    site.configure(scaler("a", size=1), scaler("b"))
    site.settle()
    site.rows.call(scaler_states.count_failures, ["b"], base_seconds=60, max_seconds=60)
    site.rows.request(labels=["b"])
    first = admit.run_pass(site.runtime)
    site.rows.execute("UPDATE scale_requests SET wait_reason = 'as it was a second ago'")
    later = admit.run_pass(site.runtime)
    assert (first.refused, first.stirs_pools, later.stirs_pools) == (1, False, False)
