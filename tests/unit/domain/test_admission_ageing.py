"""A large request that has waited long enough is not starved by small ones."""

from __future__ import annotations

import pytest

from kici_scaler.domain.admission import Admit, Decision, Refuse, decide
from kici_scaler.domain.limits import Held
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.scalers import BackendType, Cluster
from tests.support.builders import (
    admitted,
    cap,
    cluster,
    held,
    machine,
    scaler,
    situation,
    waiting,
)

AGED = 30.0


def _names(decisions: list[Decision]) -> list[str]:
    return [each.request.job_id for each in admitted(decisions)]


@pytest.mark.parametrize(("age", "passes"), [(29.9, True), (30.0, False), (9_999.0, False)])
def test_room_is_kept_only_for_those_that_waited_past_the_bound(age: float, passes: bool) -> None:
    moment = situation(cluster(scaler("a", resource_cap=cap(cpus=8))), holding=[held("a", cpus=5)])
    decisions = decide([waiting("a", cpus=4, age=age), waiting("a", cpus=1, job="small")], moment)
    assert _names(decisions) == (["small"] if passes else [])


def test_who_wants_nothing_of_what_is_short_passes() -> None:
    moment = situation(cluster(scaler("a", resource_cap=cap(cpus=8))), holding=[held("a", cpus=5)])
    decisions = decide([waiting("a", cpus=4, age=AGED), waiting("a", gib=1, job="other")], moment)
    assert _names(decisions) == ["other"]


@pytest.mark.parametrize(
    ("configured", "holding"),
    [
        pytest.param(
            cluster(scaler("a", resource_cap=cap(cpus=8)), scaler("b", resource_cap=cap(cpus=8))),
            [held("a", cpus=5), held("b", cpus=5)],
            id="scaler",
        ),
        pytest.param(
            cluster(scaler("a", pool="p"), scaler("b", pool="q"), pools={"p": cap(8), "q": cap(8)}),
            [held("a", cpus=5, pool="p"), held("b", cpus=5, pool="q")],
            id="pool",
        ),
    ],
)
def test_room_is_kept_under_each_cap_that_blocks_someone_and_under_no_other(
    configured: Cluster, holding: list[Held]
) -> None:
    moment = situation(configured, holding=holding)
    large = [waiting("a", cpus=4, age=AGED), waiting("b", cpus=4, age=AGED)]
    small = [waiting("a", cpus=1), waiting("b", cpus=1)]
    assert admitted(decide([*large, *small], moment)) == []
    assert _names(decide([large[0], *small], moment)) == [small[1].job_id]


def test_room_is_kept_for_one_request_under_a_cap_and_not_for_all() -> None:
    """The first waits for processors and little memory; only that memory is kept."""
    configured = cluster(scaler("a", resource_cap=cap(cpus=8, gib=8)))
    moment = situation(configured, holding=[held("a", cpus=8)])
    first, second = waiting("a", cpus=4, gib=1, age=AGED), waiting("a", cpus=5, gib=6, age=AGED)
    needs_memory = waiting("a", gib=7, job="needs memory")
    assert _names(decide([first, second, needs_memory], moment)) == ["needs memory"]
    assert _names(decide([second, first, needs_memory], moment)) == []


@pytest.mark.parametrize("cap_of", ["cluster", "pool"])
def test_room_is_kept_for_one_request_under_a_cap_that_scalers_share(cap_of: str) -> None:
    shared = cap(cpus=8, gib=8)
    in_pool = "p" if cap_of == "pool" else None
    configured = cluster(
        scaler("a", pool=in_pool),
        scaler("b", pool=in_pool),
        global_cap=shared if cap_of == "cluster" else None,
        pools={"p": shared},
    )
    moment = situation(configured, holding=[held("a", cpus=8, pool=in_pool)])
    first, second = waiting("a", cpus=4, gib=1, age=AGED), waiting("b", cpus=5, gib=6, age=AGED)
    needs_memory = waiting("a", gib=7, job="needs memory")
    assert _names(decide([first, second, needs_memory], moment)) == ["needs memory"]
    assert _names(decide([second, first, needs_memory], moment)) == []


def test_requests_alike_have_room_kept_on_one_machine_together() -> None:
    machines = [machine("m1"), machine("m2"), machine("m3")]
    moment = situation(
        cluster(scaler("a", resource_cap=cap(cpus=4))),
        machines=machines,
        holding=[held("a", each.id, cpus=2) for each in machines],
    )
    large = [waiting("a", cpus=4, age=AGED) for _ in range(3)]
    small = [waiting("a", cpus=2) for _ in range(3)]
    assert len(admitted(decide([*large, *small], moment))) == 2


def test_an_older_request_that_comes_later_in_the_order_has_room_kept_too() -> None:
    moment = situation(cluster(scaler("a", resource_cap=cap(cpus=8))), holding=[held("a", cpus=5)])
    urgent = waiting("a", cpus=4, priority=1)
    older = waiting("a", cpus=4, age=AGED)
    assert admitted(decide([urgent, older, waiting("a", cpus=1)], moment)) == []


@pytest.mark.parametrize("places", [2, 5])
def test_room_is_kept_on_one_machine_and_the_others_go_on(places: int) -> None:
    machines = [machine(f"m{number}") for number in range(places)]
    moment = situation(
        cluster(scaler("a", resource_cap=cap(cpus=4))),
        machines=machines,
        holding=[held("a", each.id, cpus=2) for each in machines],
    )
    decisions = decide(
        [waiting("a", cpus=4, age=AGED), *(waiting("a", cpus=2) for _ in range(10))], moment
    )
    used = {each.machine_id for each in admitted(decisions)}
    assert len(used) == places - 1


def test_room_is_kept_where_least_is_missing() -> None:
    moment = situation(
        cluster(scaler("a", resource_cap=cap(cpus=8))),
        machines=[machine("m1"), machine("m2")],
        holding=[held("a", "m1", count=1, cpus=8), held("a", "m2", count=3, cpus=3)],
    )
    large, small = waiting("a", cpus=8, age=AGED), waiting("a", cpus=1)
    assert admitted(decide([large, small], moment)) == []


def test_room_is_kept_under_the_cap_that_blocks_on_that_very_machine() -> None:
    """On m1 the scaler's own cap is in the way, on m2 the pool that others filled."""
    configured = cluster(
        scaler("a", pool="p", resource_cap=cap(cpus=8)),
        scaler("b", pool="p"),
        pools={"p": cap(cpus=10)},
    )
    moment = situation(
        configured,
        machines=[machine("m1"), machine("m2", serves={"a", "b"})],
        holding=[
            held("a", "m1", count=7, cpus=7, pool="p"),
            held("b", "m2", count=1, cpus=7, pool="p"),
        ],
    )
    large = waiting("a", cpus=4, age=AGED)
    intruders = [waiting("b", cpus=3), waiting("b", cpus=3)]
    taken = {each.machine_id for each in admitted(decide([large, *intruders], moment))}
    assert "m2" not in taken


def test_a_request_that_would_not_wait_keeps_no_room() -> None:
    moment = situation(cluster(scaler("a", resource_cap=cap(cpus=8))), holding=[held("a", cpus=5)])
    refused_anyway = waiting("a", cpus=4, age=AGED, may_wait=False)
    assert _names(decide([refused_anyway, waiting("a", cpus=1, job="small")], moment)) == ["small"]


class _Stream:
    """A scaler under a constant stream of small jobs, one ending after another, first come."""

    def __init__(self, configured: Cluster, machines: list[str], name: str = "a") -> None:
        self.configured = configured
        self.machines = [machine(each) for each in machines]
        self.name = name
        self.running: list[tuple[str | None, float]] = []
        self.clock = 0.0

    def step(self, large: Waiting, *, ends: int) -> bool:
        """Some jobs end, a pass decides; whether the large one got in."""
        del self.running[:ends]
        small = [waiting(self.name, cpus=1) for _ in range(40)]
        holding = [held(self.name, place, cpus=cpus) for place, cpus in self.running]
        moment = situation(self.configured, machines=self.machines, holding=holding)
        for each in decide([large, *small], moment):
            if isinstance(each, Admit):
                if each.request is large:
                    return True
                self.running.append((each.machine_id, each.shape.requests.cpu_millis / 1000))
        return False


@pytest.mark.parametrize("machines", [["m1"], ["m1", "m2", "m3"]], ids=["one", "three"])
@pytest.mark.parametrize("cpus", [2, 8])
@pytest.mark.parametrize("ends", [1, 3])
def test_a_large_job_is_served_under_a_constant_stream_of_small_ones(
    machines: list[str], cpus: int, ends: int
) -> None:
    stream = _Stream(cluster(scaler("a", resource_cap=cap(cpus=8))), machines)
    young, old = waiting("a", cpus=cpus, age=0), waiting("a", cpus=cpus, age=AGED)
    stream.step(waiting("a", cpus=9), ends=0)
    assert not any(stream.step(young, ends=1) for _ in range(3)), "it has waited no time yet"
    passes = 8 * len(machines) + 1
    assert any(stream.step(old, ends=ends) for _ in range(passes))


def test_a_large_job_is_served_when_the_cluster_is_what_is_short() -> None:
    configured = cluster(scaler("a", type=BackendType.EVENT), global_cap=cap(cpus=8))
    stream = _Stream(configured, [])
    stream.step(waiting("a", cpus=9), ends=0)
    old = waiting("a", cpus=6, age=AGED)
    assert any(stream.step(old, ends=1) for _ in range(9))


def test_a_refused_large_job_still_says_which_cap_it_waits_for() -> None:
    moment = situation(cluster(scaler("a", resource_cap=cap(cpus=8))), holding=[held("a", cpus=5)])
    decision = decide([waiting("a", cpus=4, age=AGED)], moment)[0]
    assert isinstance(decision, Refuse)
    assert "5 of 8 CPUs" in decision.reason
