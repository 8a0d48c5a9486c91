"""Jobs whose agents are connected already get them at once, without the section.

An agent holds its capacity from its reservation on, so nothing has to be counted to give it
away, and what gives it away is a compare-and-set that one of several wins. Who loses, and who
is behind others that wait for the same agents, is decided in the section like everybody else.

Crash table (`kill -9` at ...):
- before COMMIT: nothing was stored; the caller had no answer and repeats.
- after COMMIT, before the wake-up: the gateway's own poll finds what it owes.
- during COMMIT: unknown; the ordinary way follows, which finds the job decided or stores it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from kici_scaler.checkpoints import reached
from kici_scaler.domain.admission import Bind, decide
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.routing import NoRoute, Wanted
from kici_scaler.service import admit, revisions, warm_pools, warm_serving
from kici_scaler.service.admit import Pass
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import requests as request_rows
from kici_scaler.store import surroundings
from kici_scaler.store import waiting as waiting_rows
from kici_scaler.store.engine import CommitUnknown, transaction
from kici_scaler.store.requests import NewRequest
from kici_scaler.store.surroundings import Surroundings
from kici_scaler.store.warm import Bound

FEW = 8
"""More requests at once share the cost of a pass anyway."""


@dataclass(frozen=True, slots=True)
class Served:
    """A job that was stored with a ready agent."""

    job_id: str
    agent_id: str
    scaler: str
    backend_type: str


class _NotAll(Exception):
    """Somebody else was quicker, or a job is known already: nothing is to stay of this."""


def serve(runtime: Runtime, rows: Sequence[NewRequest]) -> Mapping[str, Served] | None:
    """Store these requests with an agent for each; None, and nothing stored, unless all get one.

    Returns who got what, by job id.

    Raises:
        DatabaseUnreachable: nothing was stored.
        Contended: another keeps one of these very jobs; nothing was stored.
    """
    seen = revisions.seen_last(runtime.engine)
    if len(rows) > FEW or (seen is not None and not warm_pools.keeps_any(seen.cluster)):
        return None
    try:
        with transaction(runtime.engine) as connection:
            served, bound = _serve(connection, rows)
    except (_NotAll, CommitUnknown):
        return None
    if not bound:
        return None
    reached("admit.committed")
    admit.announce(runtime, Pass(bound=tuple(bound), stirs_pools=True))
    return {each.job_id: each for each in served}


def _serve(
    connection: Connection, rows: Sequence[NewRequest]
) -> tuple[Sequence[Served], Sequence[Bound]]:
    seen = surroundings.look(connection, bound_seconds=admit.PASS_SECONDS)
    revision = revisions.active_of(connection, seen)
    if not warm_pools.keeps_any(revision.cluster):
        return (), ()
    binds = _decide(connection, revision, seen, [waiting_rows.as_asked(row) for row in rows])
    if len(binds) < len(rows):
        return (), ()
    if len(request_rows.insert(connection, rows)) < len(rows):
        raise _NotAll
    offer_seconds = seen.live.windows.offer_timeout_seconds
    bound = warm_serving.bind(connection, binds, offer_seconds=offer_seconds)
    if len(bound) < len(rows):
        raise _NotAll
    types = {scaler.name: scaler.type.value for scaler in revision.cluster.scalers}
    return [_served(each, types) for each in binds], bound


def _served(bind: Bind, types: Mapping[str, str]) -> Served:
    scaler = bind.agent.like.scaler
    return Served(bind.request.job_id, bind.agent.agent_id, scaler, types[scaler])


def _decide(
    connection: Connection,
    revision: revisions.Revision,
    seen: Surroundings,
    waiting: Sequence[Waiting],
) -> list[Bind]:
    """Requests of one kind, by the rules of every admission, with the agents of their pool."""
    situation = admit.situation_of(connection, revision, seen)
    kinds = {Wanted.by(each) for each in waiting}
    route = situation.table.route(kinds.pop())
    if kinds or isinstance(route, NoRoute):
        return []
    ready = warm_pools.oldest_if_first(connection, revision, situation, route, most=len(waiting))
    if not ready:
        return []
    decisions = decide(waiting, replace(situation, ready=ready, static=seen.static))
    return [each for each in decisions if isinstance(each, Bind)]
