"""What an operator does to one agent, and sees of it.

Crash table: a destroy is one transaction with its audit row in it; after its COMMIT the
row is due, so a hint that was lost is repeated by the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.request import OVER
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.errors import Conflict, KiciError, NotFound
from kici_scaler.service import ending
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import (
    agent_views,
    audit,
    events,
    outcomes,
    requests,
    settings,
    static_agents,
)
from kici_scaler.store.agent_views import AgentView
from kici_scaler.store.engine import snapshot, transaction
from kici_scaler.store.events import EventRow
from kici_scaler.store.outcomes import OutcomeRow
from kici_scaler.store.static_agents import StaticView


@dataclass(frozen=True, slots=True)
class AgentStory:
    """An agent from its reservation on; `live` is None once its compute is gone."""

    agent_id: str
    live: AgentView | None
    outcome: OutcomeRow | None
    events: tuple[EventRow, ...]
    static: StaticView | None = None
    """The agent, when no scaler made it."""


def destroy(runtime: Runtime, agent_id: str, *, actor: str) -> SpawnState | None:
    """Tear an agent down, whatever it does; a job it runs fails with that cause.

    Returns the state after that, None when nothing of it is left; asking again is safe.

    Raises:
        NotFound: no agent of that id is known.
        Conflict: no scaler made it, so its machine is not the cluster's to take away.
        DatabaseUnreachable: not known whether it happened; ask again.
    """
    with transaction(runtime.engine) as connection:
        effects = ending.end(
            connection,
            [agent_id],
            states=ending.ANY_LIVE,
            reason=DestroyReason.SHUTDOWN,
            why=f"destroyed by an operator ({actor})",
            windows=settings.windows(connection),
        )
        left = agent_views.find(connection, agent_id)
        if left is None and not effects.ended and outcomes.find(connection, agent_id) is None:
            raise _not_to_destroy(connection, agent_id)
        if effects.ended:
            audit.record(connection, actor, "agent.destroy", agent_id, {})
    ending.announce(runtime, effects)
    return None if left is None else left.state


def listed(
    runtime: Runtime,
    *,
    scaler: str | None = None,
    states: Sequence[SpawnState] | None = None,
    limit: int = 500,
) -> list[AgentView]:
    """Live agents, oldest first."""
    wanted = None if states is None else [each.value for each in states]
    with transaction(runtime.engine) as connection:
        return agent_views.listed(connection, scaler=scaler, states=wanted, limit=limit)


def static(runtime: Runtime) -> list[StaticView]:
    """Agents that no scaler made, the longest here first."""
    with transaction(runtime.engine) as connection:
        return static_agents.listed(connection)


def gone(runtime: Runtime, *, limit: int = 100) -> list[OutcomeRow]:
    """Agents whose compute is gone, newest first, as long as they are remembered."""
    with transaction(runtime.engine) as connection:
        return outcomes.recent(connection, limit=limit)


def failed(runtime: Runtime, *, limit: int = 100) -> list[OutcomeRow]:
    """Agents that failed, newest first, as long as they are remembered."""
    with transaction(runtime.engine) as connection:
        return outcomes.failed(connection, limit=limit)


def story(runtime: Runtime, agent_id: str) -> AgentStory:
    """Everything that is known of one agent.

    Raises:
        NotFound: nothing is.
    """
    with snapshot(runtime.engine) as connection:
        found = AgentStory(
            agent_id,
            agent_views.find(connection, agent_id),
            outcomes.find(connection, agent_id),
            tuple(events.after(connection, 0, agent_id=agent_id)),
            next(iter(static_agents.listed(connection, agent_id=agent_id)), None),
        )
    if found.live is None and found.static is None and found.outcome is None and not found.events:
        raise _unknown(agent_id)
    return found


@dataclass(frozen=True, slots=True)
class JobStand:
    """Whether a job is over, and the agent that has it or had it last."""

    is_over: bool
    agent_id: str | None


def job_stand(runtime: Runtime, job_id: str) -> JobStand:
    """Where a job is.

    Raises:
        NotFound: no request of that job is known.
    """
    with snapshot(runtime.engine) as connection:
        row = requests.find(connection, [job_id]).get(job_id)
        if row is None:
            raise NotFound(f"no request of job {job_id!r} is known")
        return JobStand(row.state in OVER, agent_views.agent_of_job(connection, job_id))


def kept_lines(runtime: Runtime, agent_id: str) -> tuple[str, ...]:
    """The last lines of an agent's output, as its outcome keeps them."""
    with transaction(runtime.engine) as connection:
        found = outcomes.find(connection, agent_id)
    return () if found is None else found.log_tail


def _not_to_destroy(connection: Connection, agent_id: str) -> KiciError:
    if static_agents.listed(connection, agent_id=agent_id):
        return Conflict(
            f"no scaler made agent {agent_id}, so it is not torn down",
            hint="stop it where it runs, or revoke its key so that it cannot return",
        )
    return _unknown(agent_id)


def _unknown(agent_id: str) -> NotFound:
    return NotFound(
        f"no agent {agent_id!r} is known",
        hint="`kici-scaler agents list` names those that live; ended ones are kept for a while",
    )
