"""Whether a provision is gone: its targets answered, and its agent is not there any more.

Crash table: each provision is one transaction; before its COMMIT nothing happened and the
row is due again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from kici_scaler.domain import delivery
from kici_scaler.domain.delivery import Settled
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import ending
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import agents, delivery_tries, settings, teardowns, warm_books
from kici_scaler.store.engine import transaction
from kici_scaler.store.teardowns import EndingProvision

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at an ending provision led to."""

    gone: bool = False
    effects: ending.Effects = field(default_factory=ending.Effects)
    pools_short: bool = False
    """Warm pools should be looked at, now that there is room."""


def settle_due(runtime: Runtime) -> int:
    """Look at the ending provisions whose time has come; how many are gone.

    Raises:
        DatabaseUnreachable: the rest is looked at later.
    """
    with transaction(runtime.engine) as connection:
        waiting = teardowns.due(connection, most=MOST_AT_ONCE)
    found = 0
    for agent_id in waiting:
        looked = _look_alone(runtime, agent_id)
        announce(runtime, looked)
        found += looked.gone
    return found


def _look_alone(runtime: Runtime, agent_id: str) -> Looked:
    """One that cannot be looked at must not stop the others; one somebody works on can wait."""
    try:
        with transaction(runtime.engine) as connection:
            if delivery_tries.lock_owner(connection, agent_id, wait=False) is None:
                return Looked()
            return look(connection, agent_id)
    except DBAPIError:
        log.exception("provision could not be looked at", agent_id=agent_id)
        return Looked()


def announce(runtime: Runtime, looked: Looked) -> None:
    """Send the hints of what was committed."""
    ending.announce(runtime, looked.effects)
    if looked.pools_short:
        runtime.hints.fill(soon=True)


def look(connection: Connection, agent_id: str) -> Looked:
    """Conclude what can be concluded about one provision whose spawn is locked."""
    found = teardowns.ending(connection, agent_id)
    if found is None:
        return Looked()
    windows = settings.windows(connection)
    verdict = delivery.settle(found.teardown, windows)
    if verdict is Settled.GONE:
        teardowns.gone(connection, agent_id)
        wishes = warm_books.wishes(connection)
        return Looked(
            gone=True,
            effects=ending.Effects(requests_waiting=wishes.requests_wait),
            pools_short=wishes.pools_short or found.unused,
        )
    if found.state is SpawnState.QUARANTINED:
        _alarm_dead_letters(connection, agent_id)
    effects = _tell_to_go(connection, found) if verdict.tell else ending.Effects()
    if verdict.repeat and not teardowns.owe_scale_downs(connection, [agent_id], hint_after=0.0):
        teardowns.owe_to_recorded_targets(connection, [agent_id], hint_after=0.0)
    teardowns.look_again(connection, agent_id, pause_seconds=verdict.seconds)
    return Looked(effects=effects)


def _tell_to_go(connection: Connection, found: EndingProvision) -> ending.Effects:
    """The agent outlives its teardown: that is told to it, to the operator and to its outcome."""
    what = (
        "its targets answered the scale-down, but its agent stayed connected"
        if found.teardown.unanswered == 0
        else "its scale-down is not answered, and its agent stayed connected"
    )
    if not teardowns.say_farewell(connection, found.agent_id, cause=f"{what}; it was told to go"):
        return ending.Effects()
    log.error(
        "provision not torn down",
        agent_id=found.agent_id,
        why=what,
        hint="look whether its machine still runs, and at what tears machines down",
    )
    gateway = agents.gateway_of(connection, found.agent_id)
    return ending.Effects(gateways=() if gateway is None else ((gateway, found.agent_id),))


def _alarm_dead_letters(connection: Connection, agent_id: str) -> None:
    for target in teardowns.set_aside(connection, agent_id):
        log.error(
            "scale-down cannot be delivered",
            agent_id=agent_id,
            target=target,
            hint="`kici-scaler deliveries list --dead`; it is tried on, ever less often",
        )
