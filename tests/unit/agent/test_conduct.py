"""What the agent does about each message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.agent import conduct
from kici_scaler.agent.conduct import Begin, Forget, Job, Leave, Report, Send, State, Step, Stop
from kici_scaler.agent.exit import AgentExit
from kici_scaler.agent.protocol import (
    ConfigAck,
    JobAccepted,
    JobCancel,
    JobDeclined,
    JobFinishedAck,
    JobOffer,
    JobPayload,
    JobPhase,
    JobResult,
    JobStart,
    JobStatus,
    LeaveReason,
    RegisterAck,
)

ACK = RegisterAck("agent", "resume")
PAYLOAD = JobPayload(("true",))
RESULT = JobResult(JobStatus.SUCCEEDED, 1, 2, exit_code=0)
ACCEPTED = Job("j", "r", JobPhase.ACCEPTED)
RUNNING = Job("j", "r", JobPhase.RUNNING)
FINISHED = Job("j", "r", JobPhase.FINISHED, RESULT)
NOW = 1000


def test_an_offer_is_accepted_by_an_agent_without_a_job() -> None:
    step = conduct.offered(State(), JobOffer("j", "r"))
    assert step == Step(State(ACCEPTED), (Send(JobAccepted("j")),))


@pytest.mark.parametrize("job", [ACCEPTED, RUNNING, FINISHED])
def test_the_same_offer_again_is_accepted_again_and_changes_nothing(job: Job) -> None:
    step = conduct.offered(State(job), JobOffer("j", "r"))
    assert step == Step(State(job), (Send(JobAccepted("j")),))


@pytest.mark.parametrize("job", [ACCEPTED, RUNNING, FINISHED])
def test_another_offer_is_declined(job: Job) -> None:
    step = conduct.offered(State(job), JobOffer("other", "r"))
    assert step == Step(State(job), (Send(JobDeclined("other", "busy")),))


def test_an_agent_on_its_way_out_takes_nothing() -> None:
    state = State(going=LeaveReason.SHUTDOWN)
    assert conduct.offered(state, JobOffer("j", "r")).actions == (
        Send(JobDeclined("j", "leaving")),
    )


def test_the_payload_begins_the_accepted_job() -> None:
    step = conduct.started(State(ACCEPTED), JobStart("j", PAYLOAD))
    assert step == Step(State(RUNNING), (Begin(RUNNING, PAYLOAD),))


def test_the_payload_of_a_running_job_begins_nothing() -> None:
    assert conduct.started(State(RUNNING), JobStart("j", PAYLOAD)) == Step(State(RUNNING))


def test_the_payload_of_a_finished_job_brings_its_result() -> None:
    step = conduct.started(State(FINISHED), JobStart("j", PAYLOAD))
    assert step == Step(State(FINISHED), (Report(FINISHED, RESULT),))


@pytest.mark.parametrize("state", [State(), State(Job("other", "r", JobPhase.ACCEPTED))])
def test_the_payload_of_a_job_never_accepted_is_declined(state: State) -> None:
    step = conduct.started(state, JobStart("j", PAYLOAD))
    assert step == Step(state, (Send(JobDeclined("j", "not-accepted")),))


def test_cancelling_a_running_job_stops_it_with_the_long_grace() -> None:
    step = conduct.cancelled(State(RUNNING), JobCancel("j", "why"), NOW)
    assert step == Step(State(RUNNING), (Stop("why", urgent=False),))


def test_cancelling_a_promised_job_finishes_it() -> None:
    step = conduct.cancelled(State(ACCEPTED), JobCancel("j", "why"), NOW)
    result = JobResult(JobStatus.CANCELLED, NOW, NOW, error="why")
    finished = Job("j", "r", JobPhase.FINISHED, result)
    assert step == Step(State(finished), (Report(finished, result),))


def test_cancelling_a_finished_job_changes_no_result() -> None:
    step = conduct.cancelled(State(FINISHED), JobCancel("j", "why"), NOW)
    assert step == Step(State(FINISHED), (Report(FINISHED, RESULT),))


@pytest.mark.parametrize("state", [State(), State(RUNNING)])
def test_cancelling_another_job_means_nothing(state: State) -> None:
    assert conduct.cancelled(state, JobCancel("other", "why"), NOW) == Step(state)


def test_an_agent_without_a_job_that_is_told_to_go_goes() -> None:
    step = conduct.told_to_go(State(), LeaveReason.SHUTDOWN, "why", NOW)
    assert step.actions == (Leave(AgentExit.DONE, LeaveReason.SHUTDOWN),)


def test_an_agent_with_a_job_stops_it_first_with_the_short_grace() -> None:
    step = conduct.told_to_go(State(RUNNING), LeaveReason.SIGNAL, "why", NOW)
    assert step.actions == (Stop("why", urgent=True),)
    ended = conduct.ended(step.state, RESULT)
    assert ended.actions == (Report(FINISHED, RESULT),)
    acknowledged = conduct.acknowledged(ended.state, JobFinishedAck("j"))
    assert acknowledged.actions == (Leave(AgentExit.DONE, LeaveReason.SIGNAL),)


def test_the_first_reason_to_go_counts() -> None:
    state = State(RUNNING, going=LeaveReason.SHUTDOWN)
    step = conduct.told_to_go(state, LeaveReason.SIGNAL, "why", NOW)
    assert step.state.going is LeaveReason.SHUTDOWN


def test_a_single_use_agent_leaves_when_its_result_is_acknowledged() -> None:
    step = conduct.acknowledged(State(FINISHED), JobFinishedAck("j"))
    assert step.state.acknowledged
    assert step.actions == (Leave(AgentExit.DONE),)


def test_any_other_agent_is_free_again() -> None:
    step = conduct.acknowledged(State(FINISHED, single_use=False), JobFinishedAck("j"))
    assert step == Step(State(single_use=False), (Forget(),))


@pytest.mark.parametrize("state", [State(), State(RUNNING), State(ACCEPTED)])
def test_an_acknowledgement_of_nothing_means_nothing(state: State) -> None:
    assert conduct.acknowledged(state, JobFinishedAck("j")) == Step(state)


def test_registering_repeats_the_result_that_is_owed() -> None:
    step = conduct.registered(State(FINISHED), ACK)
    assert step.actions == (Send(ConfigAck()), Report(FINISHED, RESULT))


@pytest.mark.parametrize("state", [State(), State(ACCEPTED), State(RUNNING)])
def test_registering_says_nothing_else(state: State) -> None:
    assert conduct.registered(state, ACK).actions == (Send(ConfigAck()),)


def test_idling_ends_an_agent_without_a_job_only() -> None:
    assert conduct.idled(State()).actions == (Leave(AgentExit.DONE, LeaveReason.IDLE_TIMEOUT),)
    assert conduct.idled(State(ACCEPTED)) == Step(State(ACCEPTED))


@pytest.mark.parametrize(
    ("state", "ack", "seconds"),
    [
        (State(), RegisterAck("a", "r"), 5.0),
        (State(), RegisterAck("a", "r", pending_dispatch=True), 60.0),
        (State(), RegisterAck("a", "r", warm_pool=True), None),
        (State(), RegisterAck("a", "r", warm_pool=True, pending_dispatch=True), None),
        (State(), RegisterAck("a", "r", scaler_managed=False), None),
        (State(ACCEPTED), RegisterAck("a", "r"), None),
        (State(RUNNING), RegisterAck("a", "r"), None),
    ],
)
def test_how_long_an_agent_waits(state: State, ack: RegisterAck, seconds: float | None) -> None:
    assert conduct.idle_seconds(state, ack, idle=5.0, pending_dispatch=60.0) == seconds


def test_a_command_that_ran_in_an_earlier_process_is_reported_lost() -> None:
    state = conduct.recovered(State(RUNNING), NOW)
    assert state.job is not None
    assert state.job.phase is JobPhase.FINISHED
    assert state.job.result is not None
    assert state.job.result.status is JobStatus.ERROR


@pytest.mark.parametrize("state", [State(), State(ACCEPTED), State(FINISHED)])
def test_anything_else_survives_the_process(state: State) -> None:
    assert conduct.recovered(state, NOW) == state


EVENTS = st.sampled_from(
    [
        lambda state: conduct.offered(state, JobOffer("j", "r")),
        lambda state: conduct.offered(state, JobOffer("k", "r")),
        lambda state: conduct.started(state, JobStart("j", PAYLOAD)),
        lambda state: conduct.started(state, JobStart("k", PAYLOAD)),
        lambda state: conduct.cancelled(state, JobCancel("j", "why"), NOW),
        lambda state: conduct.told_to_go(state, LeaveReason.SIGNAL, "why", NOW),
        lambda state: conduct.acknowledged(state, JobFinishedAck("j")),
        lambda state: conduct.acknowledged(state, JobFinishedAck("k")),
        lambda state: conduct.registered(state, ACK),
        lambda state: conduct.idled(state),
    ]
)


@given(st.lists(EVENTS, max_size=30), st.integers(0, 30))
def test_whatever_is_said_a_job_is_begun_once_and_left_only_acknowledged(
    events: list[object], ends_at: int
) -> None:
    """Any messages in any order, the command ending at any time."""
    state, begun, left = State(), 0, False
    for position, event in enumerate(events):
        if left:
            break
        steps = [event(state)]  # type: ignore[operator]  # each is a function of the state
        if begun and position >= ends_at and steps[-1].state.job is not None:
            running = steps[-1].state.job.phase is JobPhase.RUNNING
            steps += [conduct.ended(steps[-1].state, RESULT)] if running else []
        for step in steps:
            state = step.state
            begun += sum(isinstance(each, Begin) for each in step.actions)
            left = left or any(isinstance(each, Leave) for each in step.actions)
            assert (state.job is None or state.job.phase is not JobPhase.FINISHED) or (
                state.job.result is not None
            )
    assert begun <= 1
    if left and begun:
        assert state.acknowledged
