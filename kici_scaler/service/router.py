"""What the dispatcher's event router does: fetches an event it was told of, and acknowledges.

Crash table: each is one transaction. A router that dies in between is told again.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.domain.delivery import DeliveryKind, DeliveryState
from kici_scaler.errors import Conflict, NotFound
from kici_scaler.service import settle
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import claims, delivery_tries, delivery_views, provisions, settings
from kici_scaler.store.deliveries import TakenDelivery
from kici_scaler.store.delivery_views import DeliveryRow
from kici_scaler.store.engine import transaction


def fetch(runtime: Runtime, request_id: str) -> TakenDelivery:
    """The whole delivery, sealed code included; from now on it may have been acted on.

    Raises:
        NotFound: no router is owed such an event.
        Conflict: it is over: called off, too late, or acknowledged before.
    """
    with transaction(runtime.engine) as connection:
        delivery_tries.lock_owner(connection, _of_router(connection, request_id).agent_id)
        row = delivery_views.fetch(connection, request_id)
        if row is None:
            raise Conflict(
                f"delivery {request_id} is over; nothing may be done for it any more",
                hint="drop the event",
            )
        if row.provision is not None:
            _reached_somebody(connection, row)
        return row


def acknowledge(runtime: Runtime, request_id: str) -> DeliveryState:
    """The router has the event; how the delivery stands now. Asking again is safe.

    Raises:
        NotFound: no router is owed such an event.
    """
    looked = settle.Looked()
    with transaction(runtime.engine) as connection:
        found = _of_router(connection, request_id)
        delivery_tries.lock_owner(connection, found.agent_id)
        if delivery_views.acknowledge(connection, request_id):
            delivery_tries.count(connection, found.scaler, found.kind, found.reason)
            if found.kind is DeliveryKind.SCALE_UP:
                _boot(connection, found.agent_id, found.attempted_at or found.created_at)
            else:
                looked = settle.look(connection, found.agent_id)
        state = _of_router(connection, request_id).state
    settle.announce(runtime, looked)
    return state


def _reached_somebody(connection: Connection, row: TakenDelivery) -> None:
    assert row.provision is not None
    claims.begin_time(connection, row.agent_id, row.provision.code_until)
    _boot(connection, row.agent_id, row.attempted_at)


def _boot(connection: Connection, agent_id: str, since: datetime) -> None:
    floor = settings.windows(connection).boot_floor_seconds
    provisions.boot(connection, agent_id, since=since, boot_floor_seconds=floor)


def _of_router(connection: Connection, request_id: str) -> DeliveryRow:
    """Only what goes to routers: a webhook's code is its target's alone."""
    found = delivery_views.find(connection, request_id)
    if found is None or "://" in found.target:
        raise NotFound(f"no event {request_id} waits for a router")
    return found
