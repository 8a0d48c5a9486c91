"""What the agent does about each message: pure, no clock, socket or process.

`State` is all the agent is bound to; each function takes it with one thing that happened
and gives the next state with the actions that follow, in order. The caller stores the
next state durably before it carries out an action, so a promise outlives the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kici_scaler.agent.exit import AgentExit
from kici_scaler.agent.messages import (
    ConfigAck,
    FromAgent,
    JobAccepted,
    JobCancel,
    JobDeclined,
    JobFinishedAck,
    JobOffer,
    JobPayload,
    JobResult,
    JobStart,
    RegisterAck,
)
from kici_scaler.agent.vocabulary import DeclineReason, JobPhase, JobStatus, LeaveReason


@dataclass(frozen=True, slots=True)
class Job:
    """The one job of this agent; `result` is there exactly when `phase` is finished."""

    job_id: str
    run_id: str
    phase: JobPhase
    result: JobResult | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What the agent is bound to."""

    job: Job | None = None
    going: LeaveReason | None = None
    """Set once it was told to go: it takes no job and leaves when nothing is unreported."""
    single_use: bool = True
    """Made by a scaler: it leaves after its one job."""
    acknowledged: bool = False
    """Its one job is over and the gateway knows; only the exit is left."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message now; nothing is lost when no connection is open."""

    message: FromAgent


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the job's command."""

    job: Job
    payload: JobPayload


@dataclass(frozen=True, slots=True)
class Stop:
    """End the running command: TERM, a grace, KILL; its result comes later."""

    reason: str
    urgent: bool
    """The agent itself has to end soon, so the grace is the shorter one."""


@dataclass(frozen=True, slots=True)
class Report:
    """Send the result after the last log line, again and again until acknowledged."""

    job: Job
    result: JobResult


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what is kept of the job; the agent is free for another."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Say so if there is a reason to say, close, exit."""

    exit: AgentExit
    reason: LeaveReason | None = None


Action = Send | Begin | Stop | Report | Forget | Leave


@dataclass(frozen=True, slots=True)
class Step:
    """The state after something happened, and what follows from it."""

    state: State
    actions: tuple[Action, ...] = field(default=())


def registered(state: State, ack: RegisterAck) -> Step:
    """The gateway knows this agent (again)."""
    known = replace(state, single_use=ack.scaler_managed)
    actions: list[Action] = [Send(ConfigAck())]
    if known.job is not None and known.job.result is not None:
        actions.append(Report(known.job, known.job.result))
    elif known.going is not None and known.job is None:
        actions.append(Leave(AgentExit.DONE, known.going))
    return Step(known, tuple(actions))


def offered(state: State, offer: JobOffer) -> Step:
    """A job is offered; the same one again means that the promise got lost."""
    job = state.job
    if job is not None:
        if job.job_id == offer.job_id:
            return Step(state, (Send(JobAccepted(offer.job_id)),))
        return Step(state, (Send(JobDeclined(offer.job_id, DeclineReason.BUSY)),))
    if state.going is not None:
        return Step(state, (Send(JobDeclined(offer.job_id, DeclineReason.LEAVING)),))
    accepted = Job(offer.job_id, offer.run_id, JobPhase.ACCEPTED)
    return Step(replace(state, job=accepted), (Send(JobAccepted(offer.job_id)),))


def started(state: State, start: JobStart) -> Step:
    """The payload came. A command is begun once, however often this is said."""
    job = state.job
    if job is None or job.job_id != start.job_id:
        return Step(state, (Send(JobDeclined(start.job_id, DeclineReason.NOT_ACCEPTED)),))
    if job.phase is not JobPhase.ACCEPTED:
        return Step(state, _report_of(job))
    running = replace(job, phase=JobPhase.RUNNING)
    return Step(replace(state, job=running), (Begin(running, start.payload),))


def cancelled(state: State, cancel: JobCancel, now_ms: int) -> Step:
    """Someone no longer wants the job."""
    if state.job is None or state.job.job_id != cancel.job_id:
        return Step(state)
    return _stop(state, cancel.reason, now_ms)


def told_to_go(state: State, why: LeaveReason, detail: str, now_ms: int) -> Step:
    """The agent must end: stop the job, report it, leave."""
    going = replace(state, going=state.going or why)
    if going.job is None:
        return Step(going, (Leave(AgentExit.DONE, going.going),))
    return _stop(going, detail, now_ms)


def ended(state: State, result: JobResult) -> Step:
    """The command is over and so is every process it left behind."""
    if state.job is None:
        return Step(state)
    return _finish(state, state.job, result)


def acknowledged(state: State, ack: JobFinishedAck) -> Step:
    """The gateway has the result."""
    job = state.job
    if job is None or job.job_id != ack.job_id or job.phase is not JobPhase.FINISHED:
        return Step(state)
    if state.single_use or state.going is not None:
        return Step(replace(state, acknowledged=True), (Leave(AgentExit.DONE, state.going),))
    return Step(replace(state, job=None), (Forget(),))


def idled(state: State) -> Step:
    """No job came in time."""
    if state.job is not None:
        return Step(state)
    reason = LeaveReason.IDLE_TIMEOUT
    return Step(replace(state, going=reason), (Leave(AgentExit.DONE, reason),))


def recovered(state: State, now_ms: int) -> State:
    """The state after the agent's own process began anew: a command it ran is gone."""
    if state.job is None or state.job.phase is not JobPhase.RUNNING:
        return state
    lost = JobResult(
        JobStatus.ERROR, now_ms, now_ms, error="the agent was restarted while the job ran"
    )
    return replace(state, job=replace(state.job, phase=JobPhase.FINISHED, result=lost))


def idle_seconds(
    state: State, ack: RegisterAck, *, idle: float, pending_dispatch: float
) -> float | None:
    """How long an agent without a job stays, in seconds; None means as long as it likes.

    A warm agent and one that no scaler made wait for ever; one whose job is about to be
    offered waits longer than one that nobody seems to want.
    """
    if state.job is not None or not ack.scaler_managed or ack.warm_pool:
        return None
    return pending_dispatch if ack.pending_dispatch else idle


def _stop(state: State, reason: str, now_ms: int) -> Step:
    job = state.job
    if job is None or job.phase is JobPhase.FINISHED:
        return Step(state, _report_of(job))
    if job.phase is JobPhase.RUNNING:
        return Step(state, (Stop(reason, urgent=state.going is not None),))
    never_ran = JobResult(JobStatus.CANCELLED, now_ms, now_ms, error=reason)
    return _finish(state, job, never_ran)


def _finish(state: State, job: Job, result: JobResult) -> Step:
    finished = replace(job, phase=JobPhase.FINISHED, result=result)
    return Step(replace(state, job=finished), (Report(finished, result),))


def _report_of(job: Job | None) -> tuple[Action, ...]:
    if job is None or job.result is None:
        return ()
    return (Report(job, job.result),)
