"""A job that a ready agent can have gets it, and no other job does."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from kici_scaler.domain.request import RequestState, Result
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import admit, operations, register, request_body, sweep
from kici_scaler.service import request as requests
from kici_scaler.service.ports import NoHints
from kici_scaler.store import agents, scaler_states, warm
from kici_scaler.store.scaler_states import ScalerStanding
from kici_scaler.store.warm import Binding, Bound
from tests.integration.warm.site import GATEWAY, PAYLOAD, SHAPE, Site, label_set, scaler
from tests.support.rows import MACHINE

IMAGE = "registry.example/job:1"
GATED = [label_set("linux"), label_set("linux", "gpu")]


def _ready(site: Site, *label_sets: dict[str, Any], size: int = 2, **more: Any) -> list[str]:
    """A site with one scaler `a` whose pools are full."""
    site.configure(scaler("a", *label_sets, size=size, **more))
    site.settle()
    return site.idle()


def test_a_matching_job_gets_the_oldest_ready_agent_at_once(site: Site) -> None:
    oldest, *_ = _ready(site, label_set("linux"), size=3)

    answer = site.request("linux")

    assert (answer.result, answer.agent_id) == (Result.READY, oldest)
    assert answer.state is RequestState.ASSIGNED
    assert site.counted()["hit"] == 1
    spawn = site.rows.get("spawns", oldest)
    assert (spawn["state"], spawn["job_id"], spawn["warm"]) == ("idle", answer.job_id, True)
    assert 0 <= (spawn["due_at"] - spawn["deadline_at"]).total_seconds() < 1


def test_the_gateway_of_the_agent_is_woken_and_the_pool_is_looked_at(site: Site) -> None:
    class Noted(NoHints):
        def __init__(self) -> None:
            self.offered: list[Bound] = []
            self.fills = 0

        def offer(self, offers: Iterable[Bound]) -> None:
            self.offered += offers

        def fill(self, *, soon: bool = False) -> None:
            self.fills += 1

    agent, *_ = _ready(site, label_set("linux"))
    hints = Noted()
    site.runtime = replace(site.runtime, hints=hints)
    job = site.request("linux").job_id
    assert hints.offered == [
        Bound(agent, job, site.rows.get("scale_requests", job)["run_id"], GATEWAY)
    ]
    assert hints.fills == 1


@pytest.mark.parametrize(
    ("asks", "missed"),
    [
        ({"resources": {"cpus": 2, "memory": "1Gi"}}, "miss-shape"),
        ({"resources": {"requests": SHAPE, "limits": {"cpus": 2}}}, "miss-shape"),
        ({"resources": {"limits": {"memory": "2Gi"}}}, "miss-shape"),
    ],
)
def test_a_job_of_another_shape_on_either_side_gets_an_agent_of_its_own(
    site: Site, asks: dict[str, Any], missed: str
) -> None:
    ready = _ready(site, label_set("linux"))
    answer = site.request("linux", **asks)
    assert answer.result is Result.SPAWNING
    assert site.idle() == ready
    assert site.counted()[missed] == 1


def test_a_job_with_an_image_of_its_own_gets_an_agent_of_its_own(site: Site) -> None:
    site.rows.machine("c1", kind="container")
    site.configure(scaler("a", label_set("linux", image="agent"), size=1, type="container"))
    site.fill()
    site.rows.execute(
        "UPDATE spawns SET state = 'idle', idle_at = clock_timestamp(), due_at = NULL"
    )
    (agent,) = site.idle()
    site.rows.agent(agent)

    assert site.request("linux", container={"image": IMAGE}).result is Result.SPAWNING
    assert site.idle() == [agent]
    assert site.counted()["miss-image"] == 1
    assert site.request("linux").agent_id == agent


@pytest.mark.parametrize(
    "resources",
    [None, {"cpus": 1}, {"memory": "1024m"}, {"requests": {"cpus": 1}}, SHAPE],
)
def test_a_job_that_declares_the_agents_own_shape_or_less_of_it_is_served(
    site: Site, resources: dict[str, Any] | None
) -> None:
    _ready(site, label_set("linux"))
    more: dict[str, Any] = {} if resources is None else {"resources": resources}
    assert site.request("linux", **more).result is Result.READY


def test_a_gated_agent_serves_only_who_asks_for_the_gate(site: Site) -> None:
    _ready(site, label_set("linux", "gpu"), size=1, mandatoryLabels=["gpu"])
    assert site.request("linux").result is Result.NO_BACKEND
    assert site.request("linux", "gpu").result is Result.READY


def test_an_excluded_label_keeps_a_job_away(site: Site) -> None:
    site.configure(
        scaler("a", label_set("linux", "old"), size=1), scaler("b", label_set("linux", "new", "x"))
    )
    site.settle()
    assert site.request("linux", excludeLabels=["old"]).scaler == "b"


def test_derived_labels_may_be_asked_for(site: Site) -> None:
    _ready(site, label_set("linux"))
    answer = site.request("linux", "kici:scaler:a", "kici:os:linux", "kici:arch:amd64")
    assert answer.result is Result.READY


def test_an_agent_may_be_asked_for_by_its_host_and_excluded_by_it(site: Site) -> None:
    first, second = _ready(site, label_set("linux"))
    for agent in (first, second):
        site.rows.set("agents", agent, labels=["linux", f"kici:host:of-{agent}"])
    assert site.request("linux", f"kici:host:of-{second}").agent_id == second
    assert site.request("linux", excludeLabels=[f"kici:host:of-{first}"]).agent_id != first
    assert site.request("linux").agent_id == first


def test_the_job_is_given_to_its_own_label_set_before_any_other_that_would_do(site: Site) -> None:
    _ready(site, *GATED, size=1)
    site.rows.execute("UPDATE spawns SET idle_at = idle_at - '1h'::interval WHERE 'gpu'"
                      " = ANY(label_set)")  # fmt: skip
    agent = site.request("linux").agent_id
    assert agent is not None
    assert site.rows.get("spawns", agent)["label_set"] == ["linux"]


def test_a_job_that_would_have_to_wait_gets_a_ready_agent_of_another_label_set(site: Site) -> None:
    site.configure(scaler("a", *GATED, size=1, maxAgents=2))
    site.settle()
    site.request("linux")
    answer = site.request("linux")
    assert answer.result is Result.READY
    assert answer.agent_id is not None
    assert "gpu" in site.rows.get("spawns", answer.agent_id)["label_set"]


@pytest.mark.parametrize("how", ["absent", "gateway dead", "machine draining"])
def test_an_agent_that_could_not_start_the_job_now_is_not_given_it(site: Site, how: str) -> None:
    (agent,) = _ready(site, label_set("linux"), size=1)
    match how:
        case "absent":
            site.rows.call(
                agents.disconnect, gateway=GATEWAY, connections=[(agent, 1)], settle_seconds=2
            )
        case "gateway dead":
            site.rows.execute("UPDATE gateways SET dead_at = clock_timestamp()")
        case "machine draining":
            site.rows.machine("m2")
            operations.set_machine_draining(site.runtime, MACHINE, True, actor="test")
    answer = site.request("linux")
    assert answer.agent_id != agent
    assert answer.result is Result.SPAWNING


def test_ready_agents_serve_while_their_scaler_backs_off_but_not_while_it_is_paused(
    site: Site,
) -> None:
    _ready(site, label_set("linux"))
    site.rows.call(scaler_states.count_failures, ["a"], base_seconds=60, max_seconds=60)
    assert site.request("linux").result is Result.READY
    site.rows.call(scaler_states.stand, "a", ScalerStanding.PAUSED, reason="upgrade")
    assert site.request("linux").result is Result.SKIPPED


def test_a_draining_cluster_gives_no_ready_agent_away(site: Site) -> None:
    ready = _ready(site, label_set("linux"))
    operations.set_draining(site.runtime, True, actor="test")
    assert site.request("linux").result is Result.SKIPPED
    assert site.idle() == ready


def test_a_waiting_job_gets_the_agent_that_becomes_ready(site: Site) -> None:
    site.configure(scaler("a", label_set("linux"), size=1, maxAgents=1))
    site.fill()
    answer = site.request("linux")
    assert answer.result is Result.AT_CAPACITY
    (agent,) = site.start()
    done = site.fill()
    assert [each.job_id for each in done.decided.bound] == [answer.job_id]
    assert site.rows.get("spawns", agent)["job_id"] == answer.job_id


def test_registering_ahead_of_demand_has_the_pools_looked_at_once(site: Site) -> None:
    site.configure(scaler("a", label_set("linux"), size=1))
    site.fill()
    agent = site.rows.one("SELECT agent_id FROM spawns")
    spawn = agents.SpawnFacts(
        SpawnState.BOOTING, "a", "bare-metal", ("linux",), ("linux",), (), True, None, None, 1, "m1"
    )
    welcome = register.Welcome(agent, SpawnState.IDLE, (), (), True, None, None, spawn)
    assert welcome.is_newly_ready
    assert not replace(welcome, spawn=replace(spawn, state=SpawnState.IDLE)).is_newly_ready
    assert not replace(welcome, spawn=replace(spawn, job_id="job")).is_newly_ready


def test_an_agent_that_does_not_accept_in_time_is_fenced_and_the_job_goes_elsewhere(
    site: Site,
) -> None:
    first, second = _ready(site, label_set("linux"))
    answer = site.request("linux")
    site.rows.shift("spawns", first, deadline_at=-1, due_at=-1)

    sweep.sweep(site.runtime)

    assert site.rows.get("spawns", first)["state"] == "destroying"
    assert site.rows.get("scale_requests", answer.job_id)["state"] == "waiting"
    admit.run_pass(site.runtime)
    assert site.rows.get("spawns", second)["job_id"] == answer.job_id
    assert site.counted() == {"spawn": 2, "hit": 2, "lost": 1}


def test_of_jobs_that_come_at_once_each_ready_agent_gets_one(site: Site) -> None:
    ready = _ready(site, label_set("linux"), size=12)
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: site.request("linux"), range(24)))
    done = admit.run_pass(site.runtime)
    assert not done.refused
    given = site.rows.all(
        "SELECT agent_id, count(*) OVER (PARTITION BY agent_id) AS times FROM spawns"
        " WHERE job_id IS NOT NULL AND agent_id = ANY(:ready)",
        ready=ready,
    )
    assert sorted(row.agent_id for row in given) == sorted(ready)
    assert {row.times for row in given} == {1}
    assert len({answer.job_id for answer in answers}) == 24
    assert site.rows.count("scale_requests", "state = 'assigned'") == 24


def test_many_jobs_in_one_batch_take_ready_agents_first_and_then_new_ones(site: Site) -> None:
    ready = _ready(site, label_set("linux"), size=3)
    bodies = [
        request_body.parse_request(
            {"jobId": f"b{n}", "runId": "run", "labels": ["linux"], "payload": PAYLOAD}
        )
        for n in range(5)
    ]
    answers = requests.submit(site.runtime, bodies)
    assert [answer.result for answer in answers] == [Result.READY] * 3 + [Result.SPAWNING] * 2
    assert [answer.agent_id for answer in answers[:3]] == ready


def test_an_agent_somebody_works_on_is_passed_over_and_the_job_decided_again(site: Site) -> None:
    first, second = _ready(site, label_set("linux"))
    with site.rows.begin() as other:
        agents.lock_spawn(other, first)
        answer = site.request("linux")
        assert answer.result is Result.QUEUED
        assert site.rows.get("spawns", second)["job_id"] is None
    admit.run_pass(site.runtime)
    assert site.rows.get("spawns", first)["job_id"] == answer.job_id


def test_what_all_others_hold_is_not_even_read_for_a_job_that_gets_a_ready_agent(
    site: Site,
) -> None:
    _ready(site, label_set("linux"), size=1)
    said: list[str] = []

    def hear(*call: Any) -> None:
        said.append(call[4].statement)

    event.listen(site.rows.engine, "before_cursor_execute", hear)

    def counts_usage() -> bool:
        found = any("sum(cpu_millis)" in statement for statement in said)
        said.clear()
        return found

    assert site.request("linux").result is Result.READY
    assert not counts_usage()
    assert site.request("linux").result is Result.SPAWNING
    assert counts_usage()


@pytest.mark.parametrize("how", ["has a job", "is not seen", "is ending", "is unknown"])
def test_a_job_is_bound_only_to_who_is_still_free(site: Site, how: str) -> None:
    (agent,) = _ready(site, label_set("linux"), size=1)
    match how:
        case "has a job":
            site.request("linux")
        case "is not seen":
            site.rows.execute("UPDATE agents SET unseen_since = clock_timestamp()")
        case "is ending":
            site.rows.execute(
                "UPDATE spawns SET state = 'destroying', destroy_reason = 'idle',"
                " destroying_at = clock_timestamp(), due_at = clock_timestamp()"
            )
    job = site.rows.request("late")
    target = "scaler-bare-metal-0" if how == "is unknown" else agent
    bound = site.rows.call(
        warm.bind, [Binding(job, "run", None, target, "a", "linux")], offer_seconds=30.0
    )
    assert bound == []
    assert site.rows.get("scale_requests", job)["state"] == "waiting"
