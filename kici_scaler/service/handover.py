"""What a new configuration does to what lives, inside the transaction that makes it active.

Agents that run are left alone. Of scalers that left, what has not begun is given back and
what has no job ends; of scalers that changed, what has not begun is decided anew, so that it
starts as the new configuration says, and only where that still has room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.machines import MachineView, machines_for
from kici_scaler.domain.reload import Bucket, ReloadPlan
from kici_scaler.domain.scalers import Cluster
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.service import admit, ending, fill, queues, situations
from kici_scaler.service.admit import Pass
from kici_scaler.service.revisions import Revision
from kici_scaler.store import retiring, settings, surroundings
from kici_scaler.store.retiring import Needless

LEFT = "its scaler left the configuration"
JOBLESS = (SpawnState.SPAWNING, SpawnState.BOOTING, SpawnState.IDLE)
CHANGED = "its scaler changed before it was started"


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What was done, to be announced after the commit."""

    effects: tuple[ending.Effects, ...]
    decided: Pass
    unserved: tuple[str, ...]
    """A sentence for each new scaler that nothing can serve yet."""


def carry_out(
    connection: Connection, owner: str, before: Revision, after: Revision, plan: ReloadPlan
) -> HandedOver:
    """Inside the section, with `after` active already: bring what lives in line with it."""
    seen = surroundings.look(connection)
    situation = situations.of(connection, after, seen)
    removed = plan.named(Bucket.REMOVED)
    # Whoever would be refused now keeps the place it was given before.
    closed = situation.draining or situation.held_back
    decided_anew = () if closed else plan.redecided
    changed = [name for name in decided_anew if name not in situation.restraints]
    # Spawns are locked before the states of their scalers, here as everywhere.
    needless = retiring.lock_needless(connection, [*removed, *changed])
    gone = [each for each in needless if each.scaler in removed]
    stale = [each for each in needless if each.scaler not in removed and each.may_wait]
    effects = [
        *let_go(connection, gone, why=LEFT),
        ending.give_back(connection, _reserved(stale), why=CHANGED),
    ]
    if removed:
        retiring.retire(connection, removed, revision_id=before.id)
    retiring.take_back(connection, [each.name for each in after.cluster.scalers])
    effects += fill.trim_for_reload(connection, before, after)
    retiring.forget_gone(connection)
    jobs = [each.job_id for each in (*gone, *stale) if each.job_id is not None]
    # As many as a pass works on; of more, the next ones follow as undecided ones do.
    first = jobs[: queues.MOST_HEADS]
    decided = admit.decide_and_reserve(connection, owner, first) if first else Pass()
    new = unserved(plan, after.cluster, situation.machines) if before.id else ()
    return HandedOver(tuple(effects), decided, tuple(new))


def let_go(
    connection: Connection, needless: Sequence[Needless], *, why: str
) -> list[ending.Effects]:
    """Give back what has not begun, and end what has no job."""
    jobless = [each.agent_id for each in needless if each.state is not SpawnState.RESERVED]
    return [
        ending.give_back(connection, _reserved(needless), why=why),
        ending.end(
            connection,
            jobless,
            states=JOBLESS,
            reason=DestroyReason.DRAIN,
            why=why,
            windows=settings.windows(connection),
        ),
    ]


def unserved(plan: ReloadPlan, cluster: Cluster, machines: Sequence[MachineView]) -> Iterator[str]:
    """Why nothing can serve a scaler that is new; agents of `event` need no machine."""
    for name in (*plan.named(Bucket.ADDED), *plan.named(Bucket.RESURRECTED)):
        scaler = cluster.scaler(name)
        if scaler is not None and scaler.type.is_local:
            able, why = machines_for(scaler, (), machines)
            if not able:
                yield why


def _reserved(needless: Sequence[Needless]) -> list[str]:
    return [each.agent_id for each in needless if each.state is SpawnState.RESERVED]
