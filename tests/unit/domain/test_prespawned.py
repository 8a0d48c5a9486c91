"""Which jobs an agent that was started ahead of demand may serve, and which of them goes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain.admission import Admit, Bind, Refuse, Restraint
from kici_scaler.domain.prespawned import (
    Misfit,
    Prespawned,
    Ready,
    can_prespawned_serve,
    is_prespawned,
    misfit,
)
from kici_scaler.domain.request import WaitCode
from kici_scaler.domain.resources import Need, Shape
from kici_scaler.domain.routing import Wanted
from kici_scaler.domain.scalers import Amount, Resources, Role
from tests.support.builders import (
    GIB,
    NOW,
    cluster,
    decide_one,
    resources,
    scaler,
    situation,
    waiting,
)

SHAPE = Shape(Need(1000, GIB), Amount(2000, 2 * GIB))
AGENT = Prespawned(
    "a", "gpu,linux", frozenset({"linux", "gpu", "kici:role:builder"}), frozenset({"gpu"}), SHAPE
)
REQUESTS, LIMITS = Amount(1000, GIB), Amount(2000, 2 * GIB)


def _wanted(*labels: str, **more: object) -> Wanted:
    return replace(Wanted(frozenset(labels or ("linux", "gpu"))), **more)  # type: ignore[arg-type]  # any field of it


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (_wanted(), None),
        (_wanted(role=Role.BUILDER), None),
        (_wanted(role=Role.INIT_RUNNER), Misfit.LABELS),
        (_wanted("linux", "gpu", "x"), Misfit.LABELS),
        (_wanted("linux"), Misfit.GATED),
        (_wanted(exclude=frozenset({"linux"})), Misfit.EXCLUDED),
        (_wanted(exclude=frozenset({"windows"})), None),
        (_wanted(own_image=True), Misfit.IMAGE),
        (_wanted(resources=Resources(REQUESTS, LIMITS)), None),
        (_wanted(resources=Resources(Amount(1000), Amount(2000))), None),
        (_wanted(resources=Resources(Amount(1000), Amount(1000))), Misfit.SHAPE),
        (_wanted(resources=Resources(Amount(2000), LIMITS)), Misfit.SHAPE),
        (_wanted(resources=Resources(requests=REQUESTS)), Misfit.SHAPE),
        (_wanted(resources=Resources(limits=LIMITS)), Misfit.SHAPE),
    ],
)
def test_labels_gate_and_both_sides_of_the_shape_must_fit(
    wanted: Wanted, found: Misfit | None
) -> None:
    assert misfit(AGENT, wanted) is found
    assert can_prespawned_serve(AGENT, wanted) is (found is None)


def test_a_shape_that_cannot_be_told_serves_nobody() -> None:
    assert misfit(replace(AGENT, shape=None), _wanted()) is Misfit.SHAPE


def test_a_job_that_asks_for_nothing_is_served_by_who_has_no_gate() -> None:
    assert misfit(AGENT, Wanted()) is Misfit.GATED
    open_to_all = replace(AGENT, gate=frozenset())
    assert can_prespawned_serve(open_to_all, Wanted(exclude=frozenset({"linux"})))


amounts = st.builds(
    Amount, st.sampled_from([None, 1000, 2000]), st.sampled_from([None, GIB, 2 * GIB])
)


@given(st.builds(Resources, amounts, amounts))
def test_whoever_is_served_declares_nothing_but_the_agents_own_size(declared: Resources) -> None:
    if not can_prespawned_serve(AGENT, _wanted(resources=declared)):
        return
    for side, own in ((declared.requests, REQUESTS), (declared.limits, LIMITS)):
        assert side.cpu_millis in (None, own.cpu_millis)
        assert side.memory_bytes in (None, own.memory_bytes)


@pytest.mark.parametrize(
    ("warm", "job", "expected"), [(True, None, True), (True, "j", False), (False, None, False)]
)
def test_an_agent_is_prespawned_until_it_is_given_a_job(
    warm: bool, job: str | None, expected: bool
) -> None:
    assert is_prespawned(warm=warm, job_id=job) is expected


def _ready(*ids: str, labels: str = "linux", of: str = "a", age: float = 10) -> Ready:
    like = Prespawned(of, labels, frozenset(labels.split(",")), frozenset(), SHAPE)
    since = NOW - timedelta(seconds=age)
    return Ready(like, [(since + timedelta(seconds=n), each) for n, each in enumerate(ids)])


TWO = scaler("a", label_sets=[("linux",), ("linux", "x")], max_agents=1)


def test_ready_agents_of_the_routed_label_set_go_first_and_the_oldest_of_them() -> None:
    moment = replace(
        situation(cluster(TWO)),
        ready=[_ready("x1", labels="linux,x", age=99), _ready("l1"), _ready("l0", age=20)],
    )
    decision = decide_one(waiting("linux"), moment)
    assert isinstance(decision, Bind)
    assert decision.agent.agent_id == "l0"


def test_another_label_sets_agent_serves_only_where_nothing_can_be_started() -> None:
    moment = replace(situation(cluster(TWO)), ready=[_ready("x1", labels="linux,x")])
    assert isinstance(decide_one(waiting("linux"), moment), Admit)
    for restraint in (None, Restraint(WaitCode.BACKOFF, "failed")):
        full = replace(
            moment,
            table=situation(cluster(replace(TWO, max_agents=0))).table,
            restraints={} if restraint is None else {"a": restraint},
        )
        decision = decide_one(waiting("linux"), full)
        assert isinstance(decision, Bind)


def test_a_paused_scaler_gives_no_ready_agent_away() -> None:
    paused = Restraint(WaitCode.PAUSED, "paused", unroutable=True)
    moment = replace(situation(cluster(TWO), restraints={"a": paused}), ready=[_ready("l1")])
    assert isinstance(decide_one(waiting("linux"), moment), Refuse)


def test_a_job_of_another_shape_is_never_bound() -> None:
    moment = replace(situation(cluster(TWO)), ready=[_ready("l1")])
    decision = decide_one(waiting("linux")._replace(declared=resources(cpus=3)), moment)
    assert isinstance(decision, Admit)
