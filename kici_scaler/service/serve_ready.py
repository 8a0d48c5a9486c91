"""Jobs whose agents are connected already get them at once, without the section.

An agent holds its capacity from its reservation on, so nothing has to be counted to give it
away, and what gives it away is a compare-and-set that one of several wins. Who loses, and who
is behind others that wait for the same agents, is decided in the section like everybody else.

Two statements, each sent alone: what there is to decide by, and the jobs with their agents.
Whatever changes between them, an agent that is still free and seen serves its job as well as
it would have a moment before.

Crash table (`kill -9` at ...):
- before the second statement: nothing was stored; the caller had no answer and repeats.
- after it, before the wake-up: the gateway's own poll finds what it owes.
- during it: unknown; the ordinary way follows, which finds the job decided or stores it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from kici_scaler.checkpoints import reached
from kici_scaler.domain.admission import Bind, decide
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.routing import NoRoute, RoutingTable, Wanted
from kici_scaler.service import admit, revisions, situations, warm_pools
from kici_scaler.service.admit import Pass
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import ready_jobs
from kici_scaler.store import waiting as waiting_rows
from kici_scaler.store.engine import CommitUnknown, Contended
from kici_scaler.store.ready_jobs import NOWHERE, Gift, LabelSetPlace
from kici_scaler.store.requests import NewRequest
from kici_scaler.store.single import one_statement
from kici_scaler.store.warm import Bound

FEW = 8
"""More requests at once share the cost of a pass anyway."""
LOOKS = 2
"""The first asks for agents of the label set that served such a job by what is remembered."""


@dataclass(frozen=True, slots=True)
class Served:
    """A job that was stored with a ready agent."""

    job_id: str
    agent_id: str
    scaler: str
    backend_type: str


@dataclass(frozen=True, slots=True)
class _Choice:
    """An agent for each request, as it was a moment ago."""

    binds: Sequence[Bind]
    types: Mapping[str, str]
    """Of scalers, by name."""
    offer_seconds: float

    def served(self, bound: Sequence[Bound]) -> dict[str, Served]:
        """What those are told who got theirs, by job id."""
        got = {each.job_id for each in bound}
        return {
            each.request.job_id: Served(
                each.request.job_id,
                each.agent.agent_id,
                each.agent.like.scaler,
                self.types[each.agent.like.scaler],
            )
            for each in self.binds
            if each.request.job_id in got
        }


def serve(runtime: Runtime, rows: Sequence[NewRequest]) -> Mapping[str, Served]:
    """Store requests with an agent for each, where there is one for all of them.

    Returns who got what, by job id. Of the others nothing is stored.

    Raises:
        DatabaseUnreachable: nothing was stored.
    """
    known = revisions.table_seen_last(runtime.engine)
    if len(rows) > FEW or (known is not None and not warm_pools.keeps_any(known.cluster)):
        return {}
    try:
        with one_statement(runtime.engine) as connection:
            choice = _choose(connection, known, [waiting_rows.as_asked(row) for row in rows])
            if choice is None:
                return {}
            bound = _give(connection, rows, choice)
    except (CommitUnknown, Contended):
        return {}
    if not bound:
        return {}
    reached("admit.committed")
    admit.announce(runtime, Pass(bound=tuple(bound), stirs_pools=True))
    return choice.served(bound)


def _give(connection: Connection, rows: Sequence[NewRequest], choice: _Choice) -> Sequence[Bound]:
    agents = {each.request.job_id: each.agent for each in choice.binds}
    gifts = []
    for row in rows:
        agent = agents[row.job_id]
        gifts.append(Gift(row, agent.agent_id, agent.like.scaler, agent.like.label_set))
    return ready_jobs.give(connection, gifts, offer_seconds=choice.offer_seconds)


def _choose(
    connection: Connection, known: RoutingTable | None, waiting: Sequence[Waiting]
) -> _Choice | None:
    """Requests of one kind, by the rules of every admission, with the agents of their pool."""
    kinds = {Wanted.by(each) for each in waiting}
    wanted = kinds.pop()
    if kinds:
        return None
    place = NOWHERE if known is None else _place_of(known, wanted)
    for _ in range(LOOKS):
        seen, rows = ready_jobs.look(connection, place, most=len(waiting))
        revision = revisions.active_of(connection, seen)
        situation = situations.of(connection, revision, seen)
        asked_for, place = place, _place_of(situation.table, wanted)
        if place == NOWHERE or not warm_pools.keeps_any(revision.cluster):
            return None
        if place == asked_for:
            break
    else:
        return None
    ready = warm_pools.as_ready(rows, revision, situation)
    if not ready:
        return None
    decisions = decide(waiting, replace(situation, ready=ready, static=seen.static))
    binds = [each for each in decisions if isinstance(each, Bind)]
    if len(binds) < len(waiting):
        return None
    types = {scaler.name: scaler.type.value for scaler in revision.cluster.scalers}
    return _Choice(binds, types, seen.live.windows.offer_timeout_seconds)


def _place_of(table: RoutingTable, wanted: Wanted) -> LabelSetPlace:
    route = table.route(wanted)
    if isinstance(route, NoRoute):
        return NOWHERE
    return LabelSetPlace(route.scaler.name, route.label_set.index, tuple(route.label_set.labels))
