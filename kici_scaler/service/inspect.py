"""A backend worker saw that compute has ended: the machine's own word, no grace needed.

Crash table: one transaction; before its COMMIT nothing happened and the row is due again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.service import ending, finish, revisions
from kici_scaler.service.runtime import Runtime
from kici_scaler.storable import storable_json
from kici_scaler.store import inspections, settings
from kici_scaler.store.engine import transaction
from kici_scaler.store.inspections import Inspected


@dataclass(frozen=True, slots=True)
class InspectOrder:
    """A spawn to look at, with its scaler's options as that revision had them."""

    row: Inspected
    options: Mapping[str, object]


def to_inspect(runtime: Runtime, agent_ids: Sequence[str]) -> list[InspectOrder]:
    """Of these spawns, those that should have compute and whose agent nobody sees."""
    with transaction(runtime.engine) as connection:
        orders = []
        for row in inspections.missing(connection, agent_ids):
            scaler = revisions.scaler_of(connection, row.revision_id, row.scaler)
            if scaler is not None:
                orders.append(InspectOrder(row, scaler.options))
        return orders


def record_exit(
    runtime: Runtime,
    order: InspectOrder,
    *,
    why: str,
    log_tail: Sequence[str] = (),
    spool: str | None = None,
    with_machine: bool = False,
) -> bool:
    """End a spawn whose compute is certainly over; False when its agent is back by now.

    A result that the agent could not deliver any more is found in its spool and counts:
    an exit must not be taken for a lost job.

    Args:
        with_machine: its machine was restarted, so that its end says nothing of its scaler.
    """
    row = order.row
    result = _undelivered(spool, row.job_id) if row.state is SpawnState.BUSY else None
    if result is not None and row.job_id is not None:
        return finish.finish(
            runtime, agent_id=row.agent_id, job_id=row.job_id, result=result, log_tail=log_tail
        )
    with transaction(runtime.engine) as connection:
        if not inspections.still_missing(connection, row.agent_id, row.state):
            return False
        never_registered = row.state is SpawnState.BOOTING
        effects = ending.end(
            connection,
            [row.agent_id],
            states=(row.state,),
            reason=DestroyReason.SPAWN_TIMEOUT
            if never_registered
            else DestroyReason.HEARTBEAT_TIMEOUT,
            why=why,
            windows=settings.windows(connection),
            failed=never_registered,
            counts_against_scaler=never_registered and not with_machine,
            log_tail=log_tail,
        )
    ending.announce(runtime, effects)
    return bool(effects.ended)


def _undelivered(spool: str | None, job_id: str | None) -> Mapping[str, object] | None:
    """The result in an agent's spool file, when it is of this very job."""
    if not spool:
        return None
    try:
        stored = json.loads(spool)
    except json.JSONDecodeError:
        return None
    if not isinstance(stored, dict) or stored.get("jobId") != job_id:
        return None
    result = storable_json(stored.get("result"))
    return result if isinstance(result, dict) else None
