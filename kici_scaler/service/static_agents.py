"""The jobs of agents that no scaler made: accepted, declined, ended, looked after.

A job that such an agent accepted is never run again either. The agent itself is never torn
down: when a job ends or is taken from it, it is free for another.

Crash table: each use case is one transaction. Before COMMIT nothing happened: the agent
says it again, the row is due again. After it, a repeat finds it done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from kici_scaler.domain.judgement import brake
from kici_scaler.domain.request import RequestState, told_end
from kici_scaler.domain.static_agents import GROUP, Judgement, StaticDue, Verdict, judge_static
from kici_scaler.domain.windows import Windows
from kici_scaler.service import ending, patience
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import (
    agents,
    events,
    request_ends,
    requests,
    settings,
    static_agents,
    static_jobs,
)
from kici_scaler.store.engine import is_disconnect, transaction
from kici_scaler.store.events import EventType, NewEvent
from kici_scaler.store.observation import Observation

log = structlog.get_logger(__name__)

FREED = ending.Effects(requests_waiting=True)
"""An agent has no job any more: whoever waits for it should be decided."""


def accept(runtime: Runtime, *, agent_id: str, job_id: str) -> Mapping[str, object] | None:
    """Commit the job to the agent; its sealed payload, None when it may not have it."""
    with transaction(runtime.engine) as connection:
        windows = settings.windows(connection)
        payload = static_jobs.start_running(
            connection,
            job_id=job_id,
            agent_id=agent_id,
            lifetime_seconds=windows.maximum_lifetime_seconds,
        )
        if payload is None:
            static_agents.stop(connection, agent_id, job_id, seconds=windows.cancel_grace_seconds)
    return payload


def decline(runtime: Runtime, *, agent_id: str, job_id: str, reason: str) -> None:
    """The agent does not take the job: it goes elsewhere, and the agent rests for a while."""
    with transaction(runtime.engine) as connection:
        static_agents.stopped(connection, agent_id, job_id)
        if static_jobs.offered_to(connection, agent_id) != job_id:
            return
        windows = settings.windows(connection)
        effects = _part(
            connection, agent_id, job_id, f"agent {agent_id} declined it: {reason}", windows
        )
    ending.announce(runtime, effects)


def finish(
    runtime: Runtime,
    *,
    agent_id: str,
    job_id: str,
    state: RequestState,
    result: Mapping[str, object],
) -> bool:
    """Store the true result; True when it may be acknowledged, as for every agent."""
    with transaction(runtime.engine) as connection:
        done = static_jobs.lock_job(
            connection, agent_id=agent_id, job_id=job_id
        ) and request_ends.finish(connection, job_id=job_id, state=state, result=result)
        row = requests.find(connection, [job_id]).get(job_id)
        if row is None:
            return False
        static_agents.stopped(connection, agent_id, job_id)
        if done:
            end = told_end(state, result)
            told = NewEvent(EventType.REQUEST_FINISHED, agent_id, job_id, row.run_id, end)
            events.record(connection, [told])
    ending.announce(runtime, FREED)
    return True


def leave(runtime: Runtime, *, agent_id: str, connection_number: int) -> None:
    """The agent goes of its own accord; a job that it was offered goes elsewhere."""
    with transaction(runtime.engine) as connection:
        job_id = static_jobs.offered_to(connection, agent_id)
        effects = ending.Effects()
        if job_id is not None:
            windows = settings.windows(connection)
            effects = _part(connection, agent_id, job_id, f"agent {agent_id} left", windows)
        static_agents.forget(connection, agent_id=agent_id, connection_number=connection_number)
    ending.announce(runtime, effects)


def cancel(
    connection: Connection, *, agent_id: str, job_id: str, running: bool, reason: str
) -> ending.Effects:
    """A job was called off: one that was only offered ends at once, one that runs is told to."""
    if running:
        grace = settings.windows(connection).cancel_grace_seconds
        static_jobs.give_time_to_stop(connection, job_id, seconds=grace)
        return ending.tell(connection, agent_id)
    ended = request_ends.bereave(connection, [job_id], cause=f"its job was cancelled: {reason}")
    _tell_dispatchers(connection, agent_id, ended, reason)
    return FREED


@dataclass(frozen=True, slots=True)
class LookedAfter:
    """What a sweep did about due jobs of static agents."""

    looked_at: int = 0
    effects: tuple[ending.Effects, ...] = ()
    told: tuple[tuple[str, str], ...] = field(default=())
    """Gateways that should look what they owe (incarnation, agent id)."""


def look_after(
    connection: Connection, windows: Windows, seen: Observation, *, most: int
) -> LookedAfter:
    """Judge the jobs of static agents that are due, within the sweep's transaction."""
    due = static_jobs.pick_due(connection, most=most, first_pause=windows.hint_after_seconds)
    if not due:
        return LookedAfter()
    patient = patience.windows_for(connection, due, windows)
    judged = [
        (each, judge_static(each, patient, observing=seen.watching, in_grace=seen.in_grace))
        for each in due
    ]
    judged = _brake(connection, judged, windows)
    effects = [
        _part_alone(connection, each, verdict.why, windows)
        for each, verdict in judged
        if verdict.verdict is Verdict.PART
    ]
    told = tuple(
        (each.gateway, each.agent_id)
        for each, verdict in judged
        if verdict.verdict is Verdict.TELL and each.gateway is not None
    )
    return LookedAfter(len(due), tuple(effects), told)


def _brake(
    connection: Connection, judged: list[tuple[StaticDue, Judgement]], windows: Windows
) -> list[tuple[StaticDue, Judgement]]:
    if not any(verdict.for_absence for _, verdict in judged):
        return judged
    registered, absent = static_agents.attendance(connection)
    if not brake(registered, absent, windows):
        return judged
    log.error(
        "too many agents absent at once; none is judged",
        scaler=GROUP,
        absent=absent,
        registered=registered,
    )
    keep = Judgement(Verdict.KEEP)
    return [(each, keep if verdict.for_absence else verdict) for each, verdict in judged]


def _part_alone(
    connection: Connection, due: StaticDue, why: str, windows: Windows
) -> ending.Effects:
    """In a savepoint of its own: a row that cannot be ended must not stop the others."""
    try:
        with connection.begin_nested():
            return _part(connection, due.agent_id, due.job_id, why, windows)
    except DBAPIError as error:
        if is_disconnect(error):
            raise
        log.exception("job could not be taken from its agent", agent_id=due.agent_id)
        return ending.Effects()


def _part(
    connection: Connection, agent_id: str, job_id: str, why: str, windows: Windows
) -> ending.Effects:
    """Agent and job part: the job waits again or fails, the agent is not offered the next at once.

    One that works on the job all the same is told to stop, now or when it returns.
    """
    bereaved = request_ends.bereave(connection, [job_id], cause=why)
    static_agents.rest(connection, agent_id, seconds=windows.offer_timeout_seconds)
    _tell_dispatchers(connection, agent_id, bereaved, why)
    gateways: tuple[tuple[str, str], ...] = ()
    if any(each.state is not RequestState.WAITING for each in bereaved):
        static_agents.stop(connection, agent_id, job_id, seconds=windows.cancel_grace_seconds)
        gateway = agents.gateway_of(connection, agent_id)
        gateways = () if gateway is None else ((gateway, agent_id),)
    return ending.Effects(gateways=gateways, requests_waiting=True)


def _tell_dispatchers(
    connection: Connection, agent_id: str, bereaved: Sequence[request_ends.Bereaved], why: str
) -> None:
    events.record(
        connection,
        [
            NewEvent(
                EventType.REQUEST_REQUEUED
                if each.state is RequestState.WAITING
                else EventType.REQUEST_FINISHED,
                agent_id,
                each.job_id,
                each.run_id,
                f"{each.state}: {why}",
            )
            for each in bereaved
        ],
    )
