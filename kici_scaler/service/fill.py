"""Keeping warm pools at their size: one pass in the section, after the requests that wait.

Crash table (`kill -9` at ...):
- before COMMIT: nothing happened; the next pass finds the same.
- after COMMIT, before the hints: spawns are reserved and due, ends are due; the sweep
  repeats the hints. What the pass counted is in the same transaction as what it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import structlog
from sqlalchemy import Connection

from kici_scaler.checkpoints import reached
from kici_scaler.domain.machines import capacities
from kici_scaler.domain.spawn import DestroyReason
from kici_scaler.domain.warm import Muster, Pool
from kici_scaler.domain.warm_plan import WHY, Cause, End, Fill, Plan, plan, trim
from kici_scaler.domain.warm_yield import Yielded, ledger_once_ended, yields
from kici_scaler.domain.windows import Windows
from kici_scaler.service import admit, ending, queues, revisions, situations, warm_pools
from kici_scaler.service.admit import Moment, Pass
from kici_scaler.service.ports import Place, Step
from kici_scaler.service.reservations import Reservations, reserve
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import section, spawns, surroundings, warm, warm_books
from kici_scaler.store.engine import transaction
from kici_scaler.store.warm_books import Count, PoolRow, What

log = structlog.get_logger(__name__)

_REASONS = {Cause.SURPLUS: DestroyReason.IDLE, Cause.YIELDED: DestroyReason.IDLE}
"""What an agent is told why it goes; every other cause is a change of the configuration."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What one pass over the pools did."""

    decided: Pass
    started: frozenset[Place]
    effects: tuple[ending.Effects, ...]
    spawned: int = 0
    short: int = 0
    """Agents that are still missing somewhere."""
    leaves_more: bool = False
    """More are missing than one pass starts."""

    @property
    def ended(self) -> int:
        """How many agents were ended."""
        return sum(len(each.ended) for each in self.effects)


def fill(runtime: Runtime) -> Filled:
    """Decide what waits, then fill, reap and replace; any number of callers may, at any time.

    Raises:
        Contended: another holder kept the lock too long.
        DatabaseUnreachable: nothing was decided here.
    """
    with runtime.mutex.held(), transaction(runtime.engine) as connection:
        section.enter(connection, bound_seconds=admit.PASS_SECONDS)
        done = _in_section(connection, runtime.owner)
    reached("fill.committed")
    admit.announce(runtime, replace(done.decided, stirs_pools=False))
    if done.started:
        runtime.hints.step(Step.START, done.started)
    announce(runtime, done.effects)
    if done.leaves_more:
        runtime.hints.fill()
    return done


def announce(runtime: Runtime, effects: Iterable[ending.Effects]) -> None:
    """Hint what follows from ended agents; a reservation given back leaves room at once."""
    found = list(effects)
    for each in found:
        ending.announce(runtime, each)
    if any(each.capacity_freed for each in found):
        runtime.hints.fill(soon=True)


def trim_for_reload(
    connection: Connection, before: revisions.Revision, after: revisions.Revision
) -> list[ending.Effects]:
    """Inside the section of a reload: end the agents whose pools left or were made smaller."""
    rows = warm.members(connection)
    if not rows:
        return []
    seen = surroundings.look(connection)
    situation = replace(situations.of(connection, after, seen), draining=False)
    found = warm_pools.assembled(
        connection, after, situation, warm_pools.pools(after, situation, seen.states)
    )
    was = warm_pools.targets(before.cluster, situation.now)
    shall_be = {each.pool.key: each.pool.target for each in found.rosters}
    return _end(connection, trim(found, warm_pools.shrunk(was, shall_be)), seen.live.windows)


def _in_section(connection: Connection, owner: str) -> Filled:
    seen = surroundings.look(connection)
    revision = revisions.active_of(connection, seen)
    batch = queues.lock(connection, revision)
    moment = admit.moment_of(connection, owner, revision, seen, batch.requests)
    decided = admit.decide_waiting(moment, batch) if batch.requests else Pass()
    if moment.situation.held_back:
        return Filled(decided, frozenset(), ())
    pools = warm_pools.pools(revision, moment.situation, seen.states)
    found = warm_pools.assembled(connection, revision, moment.situation, pools)
    made = plan(found, moment.deciding, _yields(moment, decided, found))
    started = _start(moment, made.fills)
    effects = _end(connection, made.ends, moment.windows)
    _keep_books(connection, made)
    reached("fill.planned")
    return Filled(
        decided=decided,
        started=started,
        effects=tuple(effects),
        spawned=len(made.fills),
        short=sum(each.short for each in made.standings),
        leaves_more=made.leaves_more,
    )


def _yields(moment: Moment, decided: Pass, found: Muster) -> list[Yielded]:
    """Who makes room for requests that were left waiting for room alone."""
    unmet = [each for each in moment.deciding.unmet() if each.rooms is not None]
    members = [member for roster in found.rosters for member in (*roster.ready, *roster.in_flight)]
    if not unmet or not members:
        return []
    ending_now = spawns.ending_usage(moment.connection)
    later = ledger_once_ended(
        moment.revision.cluster,
        moment.situation.held,
        decided.admits,
        ending_now,
        capacities(moment.revision.cluster, moment.situation.machines),
    )
    return yields(unmet, members, later)


def _start(moment: Moment, fills: Sequence[Fill]) -> frozenset[Place]:
    if not fills:
        return frozenset()
    rows = Reservations(moment.situation, moment.revision.id, moment.owner, moment.windows, {})
    reserve(
        moment.connection,
        [_row(rows, each.pool, each.machine_id) for each in fills],
        hint_after=moment.windows.hint_after_seconds,
    )
    warm_books.count(moment.connection, (Count(*each.pool.key, What.SPAWN) for each in fills))
    return frozenset(Place(each.pool.scaler.type.value, each.machine_id) for each in fills)


def _row(rows: Reservations, pool: Pool, machine_id: str | None) -> spawns.NewSpawn:
    assert pool.route is not None, "only a pool with a route is filled"
    return rows.row(pool.scaler, pool.label_set, machine_id, pool.route.shape, None, pool.digest)


def _end(connection: Connection, ends: Sequence[End], windows: Windows) -> list[ending.Effects]:
    """End those who still have no job; whoever is worked on elsewhere is left for the next pass."""
    if not ends:
        return []
    free = set(warm.lock_free(connection, [each.member.agent_id for each in ends]))
    effects = []
    for cause in Cause:
        going = [each for each in ends if each.cause is cause and each.member.agent_id in free]
        if going:
            effects.append(_end_for(connection, cause, going, windows))
    return effects


def _end_for(
    connection: Connection, cause: Cause, going: Sequence[End], windows: Windows
) -> ending.Effects:
    warm_books.count(
        connection,
        (Count(each.member.like.scaler, each.member.like.label_set, What.REAP) for each in going),
    )
    return ending.end(
        connection,
        [each.member.agent_id for each in going],
        states=ending.BEFORE_ACCEPTED,
        reason=_REASONS.get(cause, DestroyReason.DRAIN),
        why=WHY[cause],
        windows=windows,
    )


def _keep_books(connection: Connection, made: Plan) -> None:
    """Write how pools stand where that changed; warn once of a pool that stays empty."""
    before = warm_books.pools(connection)
    now = {}
    for each in made.standings:
        pool = each.roster.pool
        row = PoolRow(*pool.key, target=pool.target, short=each.short, why=each.why)
        now[row.scaler, row.label_set] = row
        known = before.get((row.scaler, row.label_set))
        if pool.inert and (known is None or known.why != pool.inert):
            log.warning(
                "warm pool stays empty", scaler=row.scaler, label_set=row.label_set, why=pool.inert
            )
    changed = [row for key, row in now.items() if before.get(key) != row]
    warm_books.write_pools(connection, changed, before.keys() - now.keys())
    warm_books.fold(connection)
