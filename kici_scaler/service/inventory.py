"""Rows against reality: which compute on a machine no row stands for.

The rows are read after the machine was listed as well as before: a row that appears in
between protects its compute. A list that failed, or a database that does not answer,
blames nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from kici_scaler.service.runtime import Runtime
from kici_scaler.store import failovers, inspections
from kici_scaler.store.engine import transaction

log = structlog.get_logger(__name__)

RECLAIM_GRACE_SECONDS = 60.0
"""How old compute without a row must be before it is removed."""


def without_row(runtime: Runtime, agent_ids: Iterable[str]) -> frozenset[str]:
    """Of these agents, those that no row stands for; none after a failover of the database.

    Their rows may be what the failover lost: until a person has looked, they are left alone.

    Raises:
        DatabaseUnreachable: nothing may be concluded.
    """
    wanted = list(agent_ids)
    if not wanted:
        return frozenset()
    with transaction(runtime.engine) as connection:
        orphans = frozenset(wanted) - inspections.known(connection, wanted)
        if orphans and failovers.is_held(connection):
            log.warning("compute without a row is left alone after a failover", count=len(orphans))
            return frozenset()
        return orphans


def compare(
    runtime: Runtime, agent_ids: Iterable[str], *, backend_type: str, machine_id: str | None
) -> None:
    """After a failover: note how many agents on a machine that was listed whole have no row."""
    wanted = list(agent_ids)
    with transaction(runtime.engine) as connection:
        if machine_id is None or not failovers.is_held(connection):
            return
        strangers = len(frozenset(wanted) - inspections.known(connection, wanted))
        failovers.note_stock(
            connection, backend_type=backend_type, machine_id=machine_id, strangers=strangers
        )


def unseen_here(runtime: Runtime, *, backend_type: str, machine_id: str | None) -> Sequence[str]:
    """Agents whose compute should be on this machine and whom nobody sees."""
    with transaction(runtime.engine) as connection:
        return inspections.unseen_here(connection, backend_type=backend_type, machine_id=machine_id)
