"""Destroying compute: take, remove, confirm. The row goes only when the compute has.

Crash table (`kill -9` at ...):
- after take: the lease runs out; the sweep hints, another worker takes it again.
- during or after act: the next take finds less or nothing and confirms that.
- after apply: the row is gone, its outcome is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.metrics import declared
from kici_scaler.service import revisions
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import counts, endings, settings
from kici_scaler.store.counts import Count
from kici_scaler.store.endings import TakenDestroy
from kici_scaler.store.engine import transaction
from kici_scaler.store.single import one_statement

FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class DestroyOrder:
    """A taken spawn to be torn down, with its scaler's options as that revision had them."""

    row: TakenDestroy
    options: Mapping[str, object] = field(repr=False)


def take(
    runtime: Runtime, *, backend_type: str, machine_id: str | None, most: int
) -> tuple[list[DestroyOrder], bool]:
    """Take up to `most` spawns to tear down here; and whether there may be more.

    One whose configuration this version cannot read is put off: where its compute is, is not
    known, so nothing may be concluded. In the end it is quarantined, for a person to see.

    Raises:
        DatabaseUnreachable: nothing was taken for certain; what was is retaken later.
    """
    with transaction(runtime.engine) as connection:
        windows = settings.windows(connection)
        rows = endings.take(
            connection,
            kind=backend_type,
            machine_id=machine_id,
            holder=runtime.owner,
            most=most,
            lease_seconds=windows.lease_seconds,
        )
        expired = Count(declared.LEASES_EXPIRED, (backend_type, "destroy"))
        counts.add(connection, [expired for row in rows if row.lapsed])
        orders = []
        for row in rows:
            scaler = revisions.scaler_of(connection, row.revision_id, row.scaler)
            if scaler is None:
                _put_off(connection, row)
            else:
                orders.append(DestroyOrder(row, scaler.options))
        return orders, len(rows) == most


def confirm(
    runtime: Runtime,
    order: DestroyOrder,
    *,
    exit_cause: Mapping[str, object] | None = None,
    log_tail: Sequence[str] = (),
) -> bool:
    """Apply: the compute is confirmed gone. False when the lease was lost meanwhile."""
    with one_statement(runtime.engine) as connection:
        wishes = endings.confirm_gone(
            connection,
            agent_id=order.row.agent_id,
            token=order.row.token,
            exit_cause=exit_cause,
            log_tail=log_tail,
        )
    if wishes is None:
        return False
    if wishes.requests_wait:
        runtime.hints.admit(soon=True)
    if wishes.pools_short or order.row.job_id is None:
        runtime.hints.fill(soon=True)
    return True


def postpone(runtime: Runtime, order: DestroyOrder) -> SpawnState | None:
    """Apply: not confirmed; tried again after a pause that doubles."""
    with transaction(runtime.engine) as connection:
        return _put_off(connection, order.row)


def _put_off(connection: Connection, row: TakenDestroy) -> SpawnState | None:
    return endings.postpone(
        connection,
        agent_id=row.agent_id,
        token=row.token,
        pause_seconds=FIRST_PAUSE_SECONDS,
        most_seconds=LONGEST_PAUSE_SECONDS,
    )
