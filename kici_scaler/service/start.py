"""Starting compute: take the rows that slots allow, hand them out, record what was made.

Crash table (`kill -9` at ...):
- after take, before act: the lease runs out; the sweep hints, another worker takes again.
- during act: the compute may half exist under the agent's name; the next take creates the
  same name, so it is finished or found, never doubled.
- after act, before apply: as during act; the compute is found by name and recorded.
- after apply: the row is `booting`; the agent registers or its deadline ends it.
A worker that lost its lease meanwhile finds no row under its token: it removes only what
that token made.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from kici_scaler.domain.scalers import Cap, LabelSet, Scaler
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.domain.windows import Windows
from kici_scaler.metrics import declared
from kici_scaler.service import ending, revisions
from kici_scaler.service.ports import Place
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import (
    counts,
    events,
    machines,
    request_ends,
    settings,
    start_takes,
    starts,
    tokens,
)
from kici_scaler.store.counts import Count
from kici_scaler.store.engine import transaction
from kici_scaler.store.events import EventType, NewEvent
from kici_scaler.store.single import one_statement
from kici_scaler.store.start_takes import TakenStart
from kici_scaler.store.starts import MadeStart
from kici_scaler.store.tokens import MintedToken

HOLD_BACK_SECONDS = 30.0
"""How long a machine whose pool others have filled takes no more pool users."""
UNREADABLE = "the configuration it was reserved under cannot be read by this version"


@dataclass(frozen=True, slots=True)
class StartOrder:
    """A taken spawn with what its backend needs to know; the token's secret is not repeated."""

    row: TakenStart
    scaler: Scaler
    label_set: LabelSet
    agent_token: str = field(repr=False)
    windows: Windows = field(repr=False)
    pool_cap: Cap | None = None
    """What its machine pool holds at most, by the revision it was reserved under."""
    taken_at: float = field(default_factory=time.monotonic, compare=False)
    """Until when it was certainly wanted, by this process's own clock."""


def take(
    runtime: Runtime, *, backend_type: str, machine_id: str | None, most: int
) -> tuple[list[StartOrder], bool]:
    """Take up to `most` spawns to start here, each with a fresh agent token.

    Also says whether reserved ones were left behind, which a free slot could start. One whose
    configuration this version cannot read is given back, and holds up no other.

    Raises:
        DatabaseUnreachable: nothing was taken for certain; what was is retaken later.
    """
    with transaction(runtime.engine) as connection:
        found = start_takes.take(
            connection, kind=backend_type, machine_id=machine_id, holder=runtime.owner, most=most
        )
        taken, windows = found.rows, found.windows
        expired = Count(declared.LEASES_EXPIRED, (backend_type, "start"))
        counts.add(connection, [expired for row in taken if row.lapsed])
        minted = [tokens.mint(row.agent_id, row.agent_labels) for row in taken]
        if minted:
            tokens.store(connection, minted, ttl_seconds=windows.agent_token_ttl_seconds)
        orders = [
            _order(connection, row, token, windows)
            for row, token in zip(taken, minted, strict=True)
        ]
        effects = [
            undo(connection, row, windows, why=UNREADABLE)
            for row, order in zip(taken, orders, strict=True)
            if order is None
        ]
    for each in effects:
        ending.announce(runtime, each)
    return [order for order in orders if order is not None], found.left_some


def _order(
    connection: Connection, row: TakenStart, token: MintedToken, windows: Windows
) -> StartOrder | None:
    scaler = revisions.scaler_of(connection, row.revision_id, row.scaler)
    if scaler is None:
        return None
    cluster = revisions.by_id(connection, row.revision_id).cluster
    pool = cluster.pool(row.pool) if row.pool is not None else None
    return StartOrder(
        row,
        scaler,
        scaler.label_sets[row.label_set_index],
        token.secret,
        windows,
        None if pool is None else pool.cap,
    )


def still_wanted(runtime: Runtime, order: StartOrder) -> bool:
    """Whether the lease still leads and nobody has called the agent off."""
    with one_statement(runtime.engine) as connection:
        return starts.still_wanted(connection, order.row.agent_id, order.row.token)


@dataclass(frozen=True, slots=True)
class Told:
    """A lifecycle event of the backend, to be stored with the result of its step."""

    type: EventType
    detail: str
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """The compute of an order exists."""

    order: StartOrder
    ref: Mapping[str, str]
    told: Sequence[Told]


def record_created(
    runtime: Runtime, order: StartOrder, ref: Mapping[str, str], told: Sequence[Told]
) -> SpawnState | None:
    """Apply one: see `record_all_created`."""
    return record_all_created(runtime, [Created(order, ref, told)])[0]


def record_all_created(runtime: Runtime, created: Sequence[Created]) -> list[SpawnState | None]:
    """Apply: the compute exists. None where the lease was lost: undo what that token made.

    Raises:
        DatabaseUnreachable: repeat while the lease lasts; then leave it to the next holder.
    """
    if len({each.order.row.agent_id for each in created}) < len(created):
        return [record_all_created(runtime, [each])[0] for each in created]
    with one_statement(runtime.engine) as connection:
        found = starts.record_created(
            connection,
            [_made(each) for each in created],
            [event for each in created for event in _events(each.order.row, each.told)],
        )
        states = [
            # The answer to the COMMIT of this very apply may have been lost.
            found.get(row.token)
            or starts.made_with(connection, agent_id=row.agent_id, token=row.token)
            for row in (each.order.row for each in created)
        ]
    for each in created:
        if found.get(each.order.row.token) is SpawnState.DESTROYING:
            ending.announce(runtime, _destroy_again(each.order.row))
    return states


def _made(created: Created) -> MadeStart:
    row, windows = created.order.row, created.order.windows
    return MadeStart(
        row.agent_id,
        row.token,
        dict(created.ref),
        boot_floor=windows.boot_floor_seconds,
        look_after=windows.settle_seconds,
    )


def record_failure(
    runtime: Runtime,
    order: StartOrder,
    why: str,
    *,
    told: Sequence[Told] = (),
    job_caused: bool = False,
    log_tail: Sequence[str] = (),
) -> bool:
    """Apply: the spawn failed. The job waits again or fails; False when the lease was lost."""
    row = order.row
    with transaction(runtime.engine) as connection:
        state = starts.release(connection, agent_id=row.agent_id, token=row.token)
        if state is None:
            return False
        events.record(connection, _events(row, told))
        effects = ending.end(
            connection,
            [row.agent_id],
            states=(SpawnState.SPAWNING,),
            reason=DestroyReason.SPAWN_TIMEOUT,
            why=why,
            windows=order.windows,
            failed=True,
            counts_against_scaler=not job_caused,
            log_tail=log_tail,
        )
    ending.announce(runtime, effects if effects.ended else _destroy_again(row))
    return True


def release(runtime: Runtime, order: StartOrder, *, pause_seconds: float) -> None:
    """Give the lease back undone: whether something exists is not known, so look again."""
    with transaction(runtime.engine) as connection:
        starts.release(
            connection,
            agent_id=order.row.agent_id,
            token=order.row.token,
            pause_seconds=pause_seconds,
        )


def give_back(
    runtime: Runtime, order: StartOrder, *, why: str, foreign_use: Mapping[str, object]
) -> bool:
    """The machine has no room after all, and nothing was made: undo the reservation whole.

    The job waits again, uncounted; the machine takes no pool users for a while. False when
    the lease was lost, or something may exist from an earlier attempt: then the spawn ends
    the ordinary way instead.
    """
    row = order.row
    with transaction(runtime.engine) as connection:
        if row.machine_id is not None:
            machines.hold_back(
                connection,
                row.machine_id,
                row.backend_type,
                seconds=HOLD_BACK_SECONDS,
                foreign_use=foreign_use,
            )
        effects = undo(connection, row, order.windows, why=why)
    ending.announce(runtime, effects)
    return bool(effects.requests_waiting or effects.ended)


def return_unstarted(runtime: Runtime, order: StartOrder, *, why: str) -> bool:
    """The machine could not be reached, so this attempt made nothing: as `give_back`.

    After an earlier attempt something may exist, and the spawn ends the ordinary way.
    """
    with transaction(runtime.engine) as connection:
        effects = undo(connection, order.row, order.windows, why=why)
    ending.announce(runtime, effects)
    return bool(effects.requests_waiting or effects.ended)


def undo(connection: Connection, row: TakenStart, windows: Windows, *, why: str) -> ending.Effects:
    """Delete the row where nothing was made for it; else end it the ordinary way.

    Whoever lost its lease leaves it alone: a newer holder works on it, or it is undone already.
    """
    if starts.undo(connection, agent_id=row.agent_id, token=row.token):
        tokens.revoke(connection, [row.agent_id])
        jobs = [] if row.job_id is None else [row.job_id]
        request_ends.release(connection, jobs, why=f"waits again: {why}")
        return ending.Effects(requests_waiting=bool(jobs))
    if starts.release(connection, agent_id=row.agent_id, token=row.token) is None:
        return ending.Effects()
    return ending.end(
        connection,
        [row.agent_id],
        states=(SpawnState.SPAWNING,),
        reason=DestroyReason.SHUTDOWN,
        why=why,
        windows=windows,
    )


def extend_leases(runtime: Runtime, tokens: Collection[int]) -> int:
    """Keep the leases of steps that run in this process alive; returns how many still ran."""
    with transaction(runtime.engine) as connection:
        windows = settings.windows(connection)
        return starts.extend(
            connection, holder=runtime.owner, tokens=tokens, lease_seconds=windows.lease_seconds
        )


def _destroy_again(row: TakenStart) -> ending.Effects:
    return ending.Effects(destroys=frozenset({Place(row.backend_type, row.machine_id)}))


def _events(row: TakenStart, told: Sequence[Told]) -> list[NewEvent]:
    return [NewEvent(t.type, row.agent_id, row.job_id, row.run_id, t.detail, t.at_ms) for t in told]
