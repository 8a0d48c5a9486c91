"""How warm pools stand, and whom a ready agent may serve; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.domain.admission import Situation
from kici_scaler.domain.prespawned import Misfit, is_prespawned, misfit
from kici_scaler.domain.routing import Wanted
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.domain.warm import PoolKey, Roster
from kici_scaler.errors import NotFound
from kici_scaler.service import revisions, situations, warm_pools
from kici_scaler.service.revisions import Revision
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import spawns, surroundings, warm, warm_books
from kici_scaler.store.engine import snapshot
from kici_scaler.store.scaler_states import ScalerStateRow
from kici_scaler.store.warm_books import What

MISSES = (What.MISS_SHAPE, What.MISS_IMAGE, What.MISS_NONE_READY)


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One warm pool: the agents of each kind, and what was counted since it is there.

    Attributes:
        size: what the file says without its schedules.
        static: connected agents that no scaler made and that jobs of this pool could use.
        short: how many were missing after the last pass, for the reason `why`.
        why: also why a pool stays empty on purpose.
    """

    key: PoolKey
    labels: tuple[str, ...]
    size: int
    target: int
    ready: int
    static: int
    outdated: int
    absent: int
    in_flight: int
    ending: int
    short: int
    why: str
    counted: Mapping[What, int]

    @property
    def hits(self) -> int:
        """Jobs that a ready agent was given."""
        return self.counted.get(What.HIT, 0)

    @property
    def misses(self) -> int:
        """Agents that had to be started although the label set keeps some ready."""
        return sum(self.counted.get(what, 0) for what in MISSES)

    @property
    def cold_starts_avoided(self) -> int:
        """Hits whose agent did not end before it began the job."""
        return max(0, self.hits - self.counted.get(What.LOST, 0))


@dataclass(frozen=True, slots=True)
class WarmStatus:
    """Every warm pool at one moment, in the order of the file."""

    at: datetime
    pools: tuple[PoolStatus, ...]


def read(runtime: Runtime) -> WarmStatus:
    """Every pool of the configuration in force.

    Raises:
        DatabaseUnreachable: it cannot be told.
    """
    with snapshot(runtime.engine) as connection:
        revision, situation, states = _moment(connection)
        pools = warm_pools.pools(revision, situation, states)
        found = warm_pools.assembled(connection, revision, situation, pools)
        books = warm_books.pools(connection)
        counted: dict[PoolKey, dict[What, int]] = {}
        for each in warm_books.counts(connection):
            counted.setdefault(PoolKey(each.scaler, each.label_set), {})[each.what] = each.n
    return WarmStatus(
        situation.now,
        tuple(
            _status(roster, books.get(roster.pool.key), counted.get(roster.pool.key, {}))
            for roster in found.rosters
        ),
    )


def prespawned(runtime: Runtime, agent_id: str) -> bool:
    """Whether an agent was started ahead of demand and still has no job; False when unknown."""
    with snapshot(runtime.engine) as connection:
        row = spawns.find(connection, [agent_id]).get(agent_id)
    return row is not None and is_prespawned(warm=row.warm, job_id=row.job_id)


def obstacle(runtime: Runtime, agent_id: str, wanted: Wanted) -> Misfit | None:
    """Why an agent that was started ahead of demand may not have such a job; None when it may.

    Raises:
        NotFound: no such agent waits for a job.
    """
    with snapshot(runtime.engine) as connection:
        row = next(iter(warm.members(connection, agent_id=agent_id)), None)
        if row is None or row.state is not SpawnState.IDLE or not row.is_present:
            raise NotFound(
                f"no agent {agent_id!r} waits for a job",
                hint="`kici-scaler agents list` shows which ones are idle",
            )
        revision, situation, _ = _moment(connection)
        return misfit(warm_pools.like(row, revision, situation), wanted)


def _moment(
    connection: Connection,
) -> tuple[Revision, Situation, Mapping[str, ScalerStateRow]]:
    seen = surroundings.look(connection)
    revision = revisions.active_of(connection, seen)
    return revision, situations.of(connection, revision, seen), seen.states


def _status(
    roster: Roster, book: warm_books.PoolRow | None, counted: Mapping[What, int]
) -> PoolStatus:
    pool = roster.pool
    configured = pool.label_set.warm_pool
    missing = book is not None and book.short > 0
    return PoolStatus(
        key=pool.key,
        labels=pool.label_set.labels,
        size=0 if configured is None else configured.size,
        target=pool.target,
        ready=len(roster.ready),
        static=roster.static,
        outdated=len(roster.outdated),
        absent=len(roster.absent),
        in_flight=len(roster.in_flight),
        ending=len(roster.ending) + len(roster.leaving),
        short=book.short if book is not None else roster.deficit,
        why=pool.inert or pool.closed or (book.why if book is not None and missing else ""),
        counted=counted,
    )
