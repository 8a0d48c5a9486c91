"""What becomes of a spawn that is due; doubt leaves it alone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from kici_scaler.domain.judgement import (
    Condemn,
    Due,
    Judgement,
    Look,
    Verdict,
    brake,
    forgiving,
    judge,
)
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.domain.windows import Windows

S = SpawnState
WINDOWS = Windows(flap_grace_seconds=120, stranded_timeout_seconds=1800)
FLAP, STRANDED = 120.0, 1800.0


def _due(state: SpawnState, **more: object) -> Due:
    base = Due(
        agent_id="scaler-bare-metal-000000000001",
        state=state,
        scaler="a",
        backend_type="bare-metal",
        machine_id="m1",
        job_id="job",
        past_deadline=False,
        lease_held=False,
        attempts=2,
        machine_reachable=True,
        seconds_absent=None,
        adopter_dead=False,
    )
    return replace(base, **more)  # type: ignore[arg-type]  # fields by name


EVERY = [
    _due(
        state,
        past_deadline=overdue,
        lease_held=leased,
        machine_reachable=reachable,
        machine_id=machine,
        job_id=job,
        seconds_absent=absent,
        adopter_dead=dead,
        cancelled=called,
    )
    for state, overdue, leased, reachable, machine, job, absent, dead, called in itertools.product(
        S,
        [False, True],
        [False, True],
        [False, True],
        ["m1", None],
        ["job", None],
        [None, 0.0, FLAP - 1, FLAP, STRANDED - 1, STRANDED],
        [False, True],
        [False, True],
    )
    if (machine is not None or reachable)
    and (state is not S.BUSY or job is not None)
    and (state is S.BUSY or not called)
]
"""Every state with every answer to every question a judgement may ask."""

WATCHES = [(False, False), (False, True), (True, False), (True, True)]


def _reason(judgement: Judgement) -> DestroyReason | None:
    return judgement.reason if isinstance(judgement, Condemn) else None


def _expected(due: Due, *, observing: bool, in_grace: bool) -> Judgement | DestroyReason:
    """The rules once more, one after another; a condemnation is its reason."""
    state, absent = due.state, due.seconds_absent
    here = due.machine_id is not None and due.machine_reachable
    if state is S.RESERVED:
        return Look.START if due.machine_reachable else Look.NOBODY
    if state in (S.DESTROYING, S.QUARANTINED):
        if state is S.DESTROYING and due.past_deadline and not due.lease_held:
            return Verdict.QUARANTINE
        return Look.DESTROY if due.machine_reachable else Look.NOBODY
    if state in (S.SPAWNING, S.BOOTING) and due.past_deadline and observing:
        return DestroyReason.SPAWN_TIMEOUT
    if state is S.SPAWNING:
        return Look.NOBODY if due.lease_held or not due.machine_reachable else Look.START
    if state is S.BOOTING:
        return Look.INSPECT if here else Look.NOBODY
    if absent is not None:
        judging = observing and not in_grace
        if judging and due.cancelled and due.past_deadline:
            return DestroyReason.SHUTDOWN
        if judging and absent >= (FLAP if due.adopter_dead else STRANDED):
            return DestroyReason.HEARTBEAT_TIMEOUT
        if judging and state is S.IDLE and due.job_id and due.past_deadline:
            return DestroyReason.SHUTDOWN
        return Look.INSPECT if here else Look.NOBODY
    if not (due.past_deadline and observing):
        return Look.GATEWAY
    if due.cancelled:
        return DestroyReason.SHUTDOWN
    if state is S.BUSY:
        return DestroyReason.HEARTBEAT_TIMEOUT
    return DestroyReason.SHUTDOWN if due.job_id else Look.NOBODY


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize(("observing", "in_grace"), WATCHES)
def test_every_combination_is_judged_as_the_rules_say(
    state: SpawnState, observing: bool, in_grace: bool
) -> None:
    wrong = {}
    for due in EVERY:
        if due.state is state:
            found = judge(due, WINDOWS, observing=observing, in_grace=in_grace)
            if (_reason(found) or found) != _expected(due, observing=observing, in_grace=in_grace):
                wrong[due] = found
    assert not wrong


@pytest.mark.parametrize("in_grace", [False, True])
def test_who_could_not_observe_condemns_nobody(in_grace: bool) -> None:
    judged = [judge(due, WINDOWS, observing=False, in_grace=in_grace) for due in EVERY]
    assert not any(isinstance(each, Condemn) for each in judged)


def test_in_grace_nobody_is_condemned_for_absence() -> None:
    judged = [judge(due, WINDOWS, observing=True, in_grace=True) for due in EVERY]
    assert not any(isinstance(each, Condemn) and each.for_absence for each in judged)


def test_who_is_present_is_never_condemned_for_absence() -> None:
    present = [due for due in EVERY if due.seconds_absent is None]
    judged = [judge(due, WINDOWS, observing=True) for due in present]
    assert not any(isinstance(each, Condemn) and each.for_absence for each in judged)


def test_an_agent_that_does_not_stop_a_cancelled_job_is_destroyed_for_that() -> None:
    late = _due(S.BUSY, cancelled=True, past_deadline=True)
    for due in (late, replace(late, seconds_absent=1.0)):
        found = judge(due, WINDOWS, observing=True)
        assert isinstance(found, Condemn)
        assert (found.reason, found.for_absence) == (DestroyReason.SHUTDOWN, False)
        assert "did not stop" in found.why


def test_a_busy_agent_is_condemned_only_for_lasting_absence_or_its_lifetime() -> None:
    for due in EVERY:
        if due.cancelled:
            continue
        if due.state is S.BUSY and isinstance(judge(due, WINDOWS, observing=True), Condemn):
            allowed = FLAP if due.adopter_dead else STRANDED
            lasted = due.seconds_absent is not None and due.seconds_absent >= allowed
            assert lasted or (due.seconds_absent is None and due.past_deadline)


def test_nobody_is_sent_to_a_machine_that_does_not_answer() -> None:
    for due, observing in itertools.product(EVERY, [False, True]):
        if not due.machine_reachable:
            found = judge(due, WINDOWS, observing=observing)
            assert found not in (Look.START, Look.DESTROY, Look.INSPECT)


def test_only_what_never_registered_counts_as_a_failed_provision() -> None:
    for due in EVERY:
        found = judge(due, WINDOWS, observing=True)
        if isinstance(found, Condemn):
            never_registered = due.state in (S.SPAWNING, S.BOOTING)
            assert found.provision_failed is never_registered


def test_every_condemnation_says_why_in_a_sentence() -> None:
    judged = [judge(due, WINDOWS, observing=True) for due in EVERY]
    assert all(each.why for each in judged if isinstance(each, Condemn))


def test_a_job_that_nobody_accepted_does_not_wait_for_its_agent_to_return() -> None:
    offered = _due(S.IDLE, past_deadline=True, seconds_absent=40.0)
    found = judge(offered, WINDOWS, observing=True)
    assert _reason(found) is DestroyReason.SHUTDOWN
    assert judge(offered, WINDOWS, observing=True, in_grace=True) is Look.INSPECT


def test_a_dead_gateway_shortens_the_wait_and_is_named() -> None:
    absent = _due(S.BUSY, seconds_absent=FLAP)
    assert judge(absent, WINDOWS, observing=True) is Look.INSPECT
    found = judge(replace(absent, adopter_dead=True), WINDOWS, observing=True)
    assert isinstance(found, Condemn)
    assert "120 s after its gateway died" in found.why


def test_a_warm_agent_past_no_deadline_is_left_alone() -> None:
    assert judge(_due(S.IDLE, job_id=None), WINDOWS, observing=True) is Look.GATEWAY


def test_a_destroy_under_a_lease_is_not_given_up() -> None:
    overdue = _due(S.DESTROYING, past_deadline=True, lease_held=True)
    assert judge(overdue, WINDOWS, observing=True) is Look.DESTROY


@pytest.mark.parametrize(
    ("registered", "absent", "is_braked"),
    [
        (100, 9, False),
        (10, 10, True),
        (20, 10, False),
        (20, 11, True),
        (9, 9, False),
        (0, 0, False),
    ],
)
def test_many_absent_at_once_point_at_the_observer(
    registered: int, absent: int, is_braked: bool
) -> None:
    windows = Windows(brake_share=0.5, brake_minimum=10)
    assert brake(registered, absent, windows) is is_braked


@pytest.mark.parametrize(
    ("agents", "grace"), [(1, FLAP), (2_400, FLAP), (10_000, 500.0), (1_000_000, STRANDED)]
)
def test_the_flap_grace_grows_with_those_who_have_to_come_back(agents: int, grace: float) -> None:
    assert forgiving(WINDOWS, agents) == replace(WINDOWS, flap_grace_seconds=grace)


def test_a_flap_grace_that_is_long_already_stays() -> None:
    patient = replace(WINDOWS, flap_grace_seconds=3_600.0)
    assert forgiving(patient, 1_000_000) == patient
