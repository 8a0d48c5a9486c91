"""A job is accepted, declined, or reports its end.

Crash table (`kill -9` of the gateway at ...):
- accept, before COMMIT: the row is still `idle`; the offer is repeated or runs out.
- accept, after COMMIT: the row is `busy`; the agent comes back saying `accepted` and is
  sent the job again. It is never given to another.
- finish, before COMMIT: the agent keeps its result and sends it again.
- finish, after COMMIT: a repeat finds the job over and is acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kici_scaler.checkpoints import reached
from kici_scaler.domain.request import RequestState, told_end
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.service import ending, static_agents
from kici_scaler.service.reservations import is_minted
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import request_ends, requests, settings
from kici_scaler.store.engine import transaction
from kici_scaler.store.events import EventType, NewEvent
from kici_scaler.store.single import one_statement

ENDS = {
    "succeeded": RequestState.SUCCEEDED,
    "failed": RequestState.FAILED,
    "cancelled": RequestState.CANCELLED,
    "error": RequestState.FAILED,
}
"""What an agent's verdict makes of the request."""


def accept(runtime: Runtime, *, agent_id: str, job_id: str) -> Mapping[str, object] | None:
    """Commit the job to the agent that accepted it; returns its sealed payload.

    None: the job is not this agent's (any more); it must not start it.

    Raises:
        DatabaseUnreachable: not known; the agent will say again that it accepted.
    """
    if is_minted(agent_id):
        with one_statement(runtime.engine) as connection:
            payload = request_ends.start_running(connection, job_id=job_id, agent_id=agent_id)
    else:
        payload = static_agents.accept(runtime, agent_id=agent_id, job_id=job_id)
    reached("accept.committed")
    return payload


def decline(runtime: Runtime, *, agent_id: str, job_id: str, reason: str) -> None:
    """The agent cannot take the job: it goes elsewhere, and the agent away."""
    if not is_minted(agent_id):
        static_agents.decline(runtime, agent_id=agent_id, job_id=job_id, reason=reason)
        return
    with transaction(runtime.engine) as connection:
        effects = ending.end(
            connection,
            [agent_id],
            states=(SpawnState.IDLE,),
            reason=DestroyReason.SHUTDOWN,
            why=f"the agent declined job {job_id}: {reason}",
            windows=settings.windows(connection),
        )
    ending.announce(runtime, effects)


def finish(
    runtime: Runtime,
    *,
    agent_id: str,
    job_id: str,
    result: Mapping[str, object],
    log_tail: Sequence[str] = (),
    by_its_gateway: bool = False,
) -> bool:
    """Store the true result and send the agent away; True when it may be acknowledged.

    A result for a job that is over already, or that went to another agent, is acknowledged
    too and changes nothing of it: the agent need not keep it.

    Args:
        by_its_gateway: whoever says this sends the agent away, and need not be woken.
    """
    state = ENDS.get(str(result.get("status")), RequestState.FAILED)
    if not is_minted(agent_id):
        return static_agents.finish(
            runtime, agent_id=agent_id, job_id=job_id, state=state, result=result
        )
    with transaction(runtime.engine) as connection:
        told = NewEvent(EventType.REQUEST_FINISHED, agent_id, job_id, None, told_end(state, result))
        reported = request_ends.report(
            connection, agent_id=agent_id, job_id=job_id, state=state, result=result, event=told
        )
        if not reported.is_done and job_id not in requests.find(connection, [job_id]):
            return False
        effects = ending.Effects()
        if reported.is_its_own:
            effects = ending.end(
                connection,
                [agent_id],
                states=(SpawnState.BUSY,),
                reason=DestroyReason.JOB_COMPLETE,
                why="",
                windows=reported.windows,
                log_tail=log_tail,
                job_is_over=reported.is_done,
            )
    reached("finish.committed")
    ending.announce(runtime, replace(effects, gateways=()) if by_its_gateway else effects)
    return True


def leave(runtime: Runtime, *, agent_id: str, reason: str, connection_number: int = 0) -> None:
    """An idle agent ends itself (its idle time is over): tear its machine down."""
    if not is_minted(agent_id):
        static_agents.leave(runtime, agent_id=agent_id, connection_number=connection_number)
        return
    with transaction(runtime.engine) as connection:
        effects = ending.end(
            connection,
            [agent_id],
            states=(SpawnState.IDLE,),
            reason=DestroyReason.IDLE,
            why=f"the agent left: {reason}",
            windows=settings.windows(connection),
        )
    ending.announce(runtime, effects)
