"""What an operator sees of deliveries, and may do to them.

Crash table: a retry is one transaction with its audit row in it; the delivery is due then.
"""

from __future__ import annotations

from collections.abc import Sequence

from kici_scaler.domain.delivery import DeliveryState
from kici_scaler.errors import Conflict, NotFound
from kici_scaler.service import deliver
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import audit, delivery_views
from kici_scaler.store.delivery_views import DeliveryRow
from kici_scaler.store.engine import transaction


def listed(
    runtime: Runtime,
    *,
    agent_id: str | None = None,
    scaler: str | None = None,
    states: Sequence[DeliveryState] | None = None,
    only_dead: bool = False,
    limit: int = 100,
) -> list[DeliveryRow]:
    """Deliveries, newest first."""
    with transaction(runtime.engine) as connection:
        return delivery_views.listed(
            connection,
            agent_id=agent_id,
            scaler=scaler,
            states=states,
            only_dead=only_dead,
            limit=limit,
        )


def one(runtime: Runtime, delivery_id: str) -> DeliveryRow:
    """One delivery.

    Raises:
        NotFound: nothing goes by that id.
    """
    with transaction(runtime.engine) as connection:
        found = delivery_views.find(connection, delivery_id)
    if found is None:
        raise _unknown(delivery_id)
    return found


def retry(runtime: Runtime, delivery_id: str, *, actor: str) -> DeliveryRow:
    """Try a pending delivery now instead of after its pause.

    Raises:
        NotFound: nothing goes by that id.
        Conflict: it is over, so nothing can be sent; the message says what can be done.
    """
    with transaction(runtime.engine) as connection:
        tried = delivery_views.try_at_once(connection, delivery_id)
        found = delivery_views.find(connection, delivery_id)
        if found is None:
            raise _unknown(delivery_id)
        if tried:
            audit.record(connection, actor, "delivery.retry", delivery_id, {})
    if not tried and not found.in_flight:
        raise Conflict(
            f"delivery {delivery_id} is over ({found.state}); nothing is sent for it any more",
            hint="its code is erased; a job that still waits gets a machine of its own",
        )
    deliver.remind(runtime, [deliver.STEPS[found.kind]])
    return found


def _unknown(delivery_id: str) -> NotFound:
    return NotFound(
        f"no delivery {delivery_id!r} is known",
        hint="`kici-scaler deliveries list` names them; ended ones are kept for a while",
    )
