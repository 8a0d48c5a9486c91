"""Who gets an agent, and what the others are told."""

from __future__ import annotations

import weakref

import pytest

from kici_scaler.domain.admission import (
    Admit,
    Deciding,
    Refuse,
    Restraint,
    backoff_restraint,
    decide,
)
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.limits import Held
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.scalers import BackendType, Cluster
from tests.support.builders import (
    admitted,
    cap,
    cluster,
    decide_one,
    held,
    machine,
    refused,
    scaler,
    situation,
    waiting,
)

EVENT = BackendType.EVENT


def test_a_request_that_fits_gets_the_scaler_that_serves_its_labels() -> None:
    moment = situation(cluster(scaler("cpu", "linux"), scaler("gpu", "linux", "gpu")))
    decision = decide_one(waiting("linux", "gpu", cpus=2, gib=4), moment)
    assert isinstance(decision, Admit)
    assert (decision.scaler.name, decision.machine_id) == ("gpu", "m1")
    assert (decision.shape.requests.cpu_millis, decision.shape.limits.cpu_millis) == (2000, 2000)


def test_an_event_spawn_has_no_machine() -> None:
    moment = situation(cluster(scaler("cloud", type=EVENT)), machines=())
    decision = decide_one(waiting("cloud"), moment)
    assert isinstance(decision, Admit)
    assert decision.machine_id is None


def test_a_request_for_no_labels_gets_the_first_scaler_of_the_file_that_asks_for_none() -> None:
    gated = scaler("gated", gate={"gated"})
    moment = situation(cluster(gated, scaler("first", "a", "b", "c"), scaler("second")))
    decision = decide_one(waiting(), moment)
    assert isinstance(decision, Admit)
    assert decision.scaler.name == "first"


def test_a_request_for_no_labels_finds_nothing_where_every_scaler_wants_to_be_asked() -> None:
    decision = decide_one(waiting(), situation(cluster(scaler("gated", gate={"gated"}))))
    assert isinstance(decision, Refuse)
    assert decision.code is WaitCode.NO_BACKEND


def test_no_requests_no_decisions() -> None:
    assert decide([], situation(cluster(scaler("a")))) == []


def test_decisions_come_in_the_order_of_the_requests_and_the_first_takes_the_last_place() -> None:
    moment = situation(cluster(scaler("a", max_agents=1), scaler("b", max_agents=1)))
    requests = [waiting("a"), waiting("b"), waiting("a"), waiting("nowhere"), waiting("b")]
    decisions = decide(requests, moment)
    assert [each.request for each in decisions] == requests
    assert [isinstance(each, Admit) for each in decisions] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("configured", "holding", "code", "words"),
    [
        pytest.param(
            cluster(scaler("a", max_agents=2)),
            [held("a", count=2)],
            WaitCode.AT_CAPACITY,
            ["scaler `a` holds 2 of its 2 agents", "on machine `m1`"],
            id="the scaler's agents on the only machine",
        ),
        pytest.param(
            cluster(scaler("a"), global_max_agents=3),
            [held("b", "m2", count=3)],
            WaitCode.AT_CAPACITY,
            ["the cluster (globalMaxAgents) holds 3 of its 3 agents"],
            id="the cluster's agents, whoever holds them",
        ),
        pytest.param(
            cluster(scaler("a", resource_cap=cap(cpus=3))),
            [held("a", cpus=2)],
            WaitCode.AT_CAPACITY,
            ["resourceCap of scaler `a`", "2 of 3 CPUs", "2 are needed"],
            id="the scaler's processors",
        ),
        pytest.param(
            cluster(scaler("a", resource_cap=cap(gib=3))),
            [held("a", gib=3)],
            WaitCode.AT_CAPACITY,
            ["resourceCap of scaler `a`", "3Gi of 3Gi memory", "1Gi are needed"],
            id="the scaler's memory",
        ),
        pytest.param(
            cluster(scaler("a"), global_cap=cap(cpus=4)),
            [held("b", "m9", cpus=3)],
            WaitCode.AT_CAPACITY,
            ["globalResourceCap", "3 of 4 CPUs"],
            id="the cluster's processors",
        ),
        pytest.param(
            cluster(scaler("a"), global_cap=cap(gib=4)),
            [held("b", "m9", gib=4)],
            WaitCode.AT_CAPACITY,
            ["globalResourceCap", "4Gi of 4Gi memory"],
            id="the cluster's memory",
        ),
        pytest.param(
            cluster(scaler("a", pool="host"), pools={"host": cap(cpus=3)}),
            [held("b", cpus=2, pool="host")],
            WaitCode.AT_CAPACITY,
            ["pool `host` on machine `m1`", "2 of 3 CPUs"],
            id="the machine pool, whichever scaler fills it",
        ),
    ],
)
def test_a_cap_in_the_way_is_named(
    configured: Cluster, holding: list[Held], code: WaitCode, words: list[str]
) -> None:
    decision = decide_one(waiting("a", cpus=2, gib=1), situation(configured, holding=holding))
    assert isinstance(decision, Refuse)
    assert (decision.code, decision.scaler) == (code, "a")
    for word in words:
        assert word in decision.reason


@pytest.mark.parametrize("room", [2.0, 1.999])
def test_a_cap_may_be_filled_but_not_passed(room: float) -> None:
    moment = situation(
        cluster(scaler("a", resource_cap=cap(cpus=4))), holding=[held("a", cpus=4 - room)]
    )
    assert isinstance(decide_one(waiting("a", cpus=2), moment), Admit) is (room >= 2)


def test_limits_alone_count_as_requests() -> None:
    request = waiting("a", cpus=2)
    moment = situation(cluster(scaler("a", resource_cap=cap(cpus=3))))
    first, second = decide([request, waiting("a", cpus=2)], moment)
    assert isinstance(first, Admit)
    assert isinstance(second, Refuse)


def test_a_local_scaler_is_capped_on_each_machine_and_an_event_scaler_once() -> None:
    local = situation(
        cluster(scaler("a", max_agents=2)), machines=[machine("m1"), machine("m2"), machine("m3")]
    )
    event = situation(cluster(scaler("a", type=EVENT, max_agents=2)))
    requests = [waiting("a") for _ in range(10)]
    assert len(admitted(decide(requests, local))) == 6
    assert len(admitted(decide(requests, event))) == 2


def test_a_pool_is_capped_on_each_machine_and_shared_there() -> None:
    configured = cluster(
        scaler("a", pool="host"), scaler("b", pool="host"), pools={"host": cap(cpus=2)}
    )
    moment = situation(configured, machines=[machine("m1"), machine("m2")])
    requests = [waiting("a" if number % 2 else "b", cpus=1) for number in range(10)]
    decisions = admitted(decide(requests, moment))
    places = [each.machine_id for each in decisions]
    assert (len(places), places.count("m1"), places.count("m2")) == (4, 2, 2)


def test_an_event_scaler_ignores_the_pool_of_machines() -> None:
    configured = cluster(scaler("a", type=EVENT, pool="host"), pools={"host": cap(cpus=1)})
    assert isinstance(decide_one(waiting("a", cpus=2), situation(configured)), Admit)


def test_what_another_machine_holds_does_not_count_here() -> None:
    moment = situation(
        cluster(scaler("a", max_agents=1)),
        machines=[machine("m1"), machine("m2")],
        holding=[held("a", "m1")],
    )
    decision = decide_one(waiting("a"), moment)
    assert isinstance(decision, Admit)
    assert decision.machine_id == "m2"


def test_lowering_a_cap_below_what_is_held_admits_nobody_and_complains_of_nothing_else() -> None:
    moment = situation(cluster(scaler("a", max_agents=1)), holding=[held("a", count=5)])
    decision = decide_one(waiting("a"), moment)
    assert isinstance(decision, Refuse)
    assert "holds 5 of its 1" in decision.reason


def test_a_request_larger_than_every_cap_will_ever_allow_is_served_by_nothing() -> None:
    decision = decide_one(
        waiting("a", cpus=8), situation(cluster(scaler("a", resource_cap=cap(cpus=4))))
    )
    assert isinstance(decision, Refuse)
    assert (decision.code, decision.scaler) == (WaitCode.NO_BACKEND, "")
    assert "cap of 4" in decision.reason


def test_a_request_too_large_for_the_best_label_set_goes_to_the_next() -> None:
    small = scaler("small", "linux", resource_cap=cap(cpus=2))
    moment = situation(cluster(small, scaler("large", "linux", "large")))
    decision = decide_one(waiting("linux", cpus=4), moment)
    assert isinstance(decision, Admit)
    assert decision.scaler.name == "large"


@pytest.mark.parametrize(
    "request_", [waiting("unknown"), waiting("a", exclude=["a"])], ids=["unknown", "excluded"]
)
def test_what_nothing_offers_is_said_and_stands_behind_no_scaler(request_: Waiting) -> None:
    decision = decide_one(request_, situation(cluster(scaler("a"))))
    assert isinstance(decision, Refuse)
    assert (decision.code, decision.scaler) == (WaitCode.NO_BACKEND, "")
    assert "`a`" in decision.reason or "`unknown`" in decision.reason


def test_a_blocked_scaler_delays_no_request_of_another() -> None:
    moment = situation(
        cluster(scaler("full", max_agents=1), scaler("free")), holding=[held("full")]
    )
    requests = [waiting("full", age=9_999, priority=9) for _ in range(5)] + [waiting("free")]
    assert [each.scaler.name for each in admitted(decide(requests, moment))] == ["free"]


def test_a_request_too_large_for_now_lets_smaller_ones_of_its_scaler_pass() -> None:
    moment = situation(cluster(scaler("a", resource_cap=cap(cpus=4))), holding=[held("a", cpus=1)])
    large, small = decide([waiting("a", cpus=4), waiting("a", cpus=2)], moment)
    assert isinstance(large, Refuse)
    assert isinstance(small, Admit)


def test_a_draining_cluster_admits_nobody_and_says_how_that_ends() -> None:
    decisions = decide([waiting("a"), waiting("x")], situation(cluster(scaler("a")), draining=True))
    assert {each.code for each in refused(decisions)} == {WaitCode.DRAINING}
    assert all("drain off" in each.reason for each in refused(decisions))


PAUSED = Restraint(WaitCode.PAUSED, "scaler `a` is paused: upgrade", unroutable=True)


def test_a_paused_scaler_leaves_its_requests_to_other_label_sets() -> None:
    configured = cluster(scaler("a", "linux"), scaler("b", "linux", "large"))
    decision = decide_one(waiting("linux"), situation(configured, restraints={"a": PAUSED}))
    assert isinstance(decision, Admit)
    assert decision.scaler.name == "b"


def test_a_request_that_only_a_paused_scaler_serves_waits_behind_it_and_says_so() -> None:
    configured = cluster(scaler("a", "linux"), scaler("b"))
    decision = decide_one(waiting("linux"), situation(configured, restraints={"a": PAUSED}))
    assert isinstance(decision, Refuse)
    assert (decision.code, decision.scaler) == (WaitCode.PAUSED, "a")
    assert "paused: upgrade" in decision.reason


def test_a_scaler_that_backs_off_keeps_its_requests() -> None:
    configured = cluster(scaler("a", "linux"), scaler("b", "linux", "large"))
    backoff = backoff_restraint("a", 12.2, streak=1, limit=5)
    decision = decide_one(waiting("linux"), situation(configured, restraints={"a": backoff}))
    assert isinstance(decision, Refuse)
    assert (decision.code, decision.scaler) == (WaitCode.BACKOFF, "a")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(12.0, "12 s"), (12.01, "13 s"), (0.2, "1 s"), (899.5, "900 s")]
)
def test_the_backoff_left_is_rounded_up(seconds: float, shown: str) -> None:
    reason = backoff_restraint("a", seconds, streak=1, limit=5).reason
    assert f"another {shown}" in reason
    assert "`a`" in reason


@pytest.mark.parametrize(("streak", "is_told"), [(1, False), (4, False), (5, True), (6, True)])
def test_a_long_streak_of_failures_points_at_what_provisions(streak: int, is_told: bool) -> None:
    reason = backoff_restraint("a", 30, streak=streak, limit=5).reason
    assert (f"{streak} failed starts in a row" in reason) is is_told
    assert ("look at what provisions" in reason) is is_told


def test_the_least_loaded_machine_is_taken_and_the_first_name_among_equals() -> None:
    moment = situation(
        cluster(scaler("a")),
        machines=[machine("m3"), machine("m1"), machine("m2")],
        holding=[held("other", "m1", count=2), held("other", "m2"), held("other", "m3")],
    )
    decisions = admitted(decide([waiting("a") for _ in range(5)], moment))
    assert [each.machine_id for each in decisions] == ["m2", "m3", "m1", "m2", "m3"]


def test_a_full_machine_is_passed_over_even_when_it_is_the_least_loaded() -> None:
    moment = situation(
        cluster(scaler("a", resource_cap=cap(cpus=4))),
        machines=[machine("m1"), machine("m2")],
        holding=[held("a", "m1", cpus=4), held("a", "m2", count=3, cpus=1)],
    )
    decision = decide_one(waiting("a", cpus=1), moment)
    assert isinstance(decision, Admit)
    assert decision.machine_id == "m2"


@pytest.mark.parametrize("obstacle", ["is draining", "is unreachable", "was not heard of"])
def test_a_machine_with_an_obstacle_takes_nothing_new(obstacle: str) -> None:
    moment = situation(
        cluster(scaler("a")), machines=[machine("m1", obstacle=obstacle), machine("m2")]
    )
    decisions = admitted(decide([waiting("a"), waiting("a")], moment))
    assert {each.machine_id for each in decisions} == {"m2"}


def test_when_every_machine_has_an_obstacle_each_is_named() -> None:
    machines = [machine("m2", obstacle="is unreachable"), machine("m1", obstacle="is draining")]
    decision = decide_one(waiting("a"), situation(cluster(scaler("a")), machines=machines))
    assert isinstance(decision, Refuse)
    assert (decision.code, decision.scaler) == (WaitCode.NO_MACHINE, "a")
    assert "machine `m1` is draining; machine `m2` is unreachable" in decision.reason


def test_a_scaler_without_machines_says_which_worker_to_start() -> None:
    decision = decide_one(waiting("a"), situation(cluster(scaler("a")), machines=()))
    assert isinstance(decision, Refuse)
    assert decision.code is WaitCode.NO_MACHINE
    assert "kici-scaler worker bare-metal" in decision.reason


def test_only_machines_of_its_type_that_serve_the_scaler_count() -> None:
    machines = [
        machine("other", type=BackendType.CONTAINER),
        machine("not-mine", serves={"b"}),
        machine("mine", serves={"a", "b"}),
    ]
    decision = decide_one(waiting("a"), situation(cluster(scaler("a")), machines=machines))
    assert isinstance(decision, Admit)
    assert decision.machine_id == "mine"


def test_a_job_for_another_architecture_gets_a_machine_of_that_kind() -> None:
    machines = [machine("m1"), machine("m2", facts=MachineFacts("linux", "arm64"))]
    moment = situation(cluster(scaler("a")), machines=machines)
    decision = decide_one(waiting("a", "arm64", "kici:arch:arm64"), moment)
    assert isinstance(decision, Admit)
    assert decision.machine_id == "m2"


def test_foreign_use_of_a_pool_holds_back_only_what_counts_against_it() -> None:
    configured = cluster(scaler("in", pool="host"), scaler("out"), pools={"host": cap(cpus=9)})
    moment = situation(configured, machines=[machine("m1", pool_obstacle="has its pool filled")])
    inside, outside = decide([waiting("in"), waiting("out")], moment)
    assert isinstance(inside, Refuse)
    assert inside.code is WaitCode.NO_MACHINE
    assert "has its pool filled" in inside.reason
    assert isinstance(outside, Admit)


def test_of_several_full_machines_the_first_is_named_and_the_others_are_counted() -> None:
    moment = situation(
        cluster(scaler("a", resource_cap=cap(cpus=8))),
        machines=[machine("m1"), machine("m2"), machine("m3")],
        holding=[held("a", "m1", cpus=8), held("a", "m2", cpus=5), held("a", "m3", cpus=7)],
    )
    decision = decide_one(waiting("a", cpus=4), moment)
    assert isinstance(decision, Refuse)
    assert "on machine `m1`: 8 of 8 CPUs" in decision.reason
    assert "no room on 2 other machines either" in decision.reason


def test_requests_alike_are_refused_alike() -> None:
    moment = situation(cluster(scaler("a", max_agents=1)), holding=[held("a")])
    decisions = refused(decide([waiting("a"), waiting("a"), waiting("a")], moment))
    assert len({each.reason for each in decisions}) == 1


def test_nothing_keeps_a_decision_that_nobody_holds() -> None:
    paused = Restraint(WaitCode.PAUSED, "scaler `a` is paused", unroutable=True)
    moment = situation(cluster(scaler("a"), scaler("b")), restraints={"a": paused})
    deciding = Deciding(moment)
    assert len(deciding.decide([waiting("a"), waiting("b")])) == 2
    gone = weakref.ref(deciding)
    del deciding
    assert gone() is None, "it waits for the collector of cycles"
