"""What an operator does to the cluster as a whole, and to its machines.

Crash table: each is one transaction, with its audit row in it.
"""

from __future__ import annotations

from kici_scaler.errors import NotFound
from kici_scaler.service import ending
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import audit, failovers, machines, settings
from kici_scaler.store.audit import AuditRow
from kici_scaler.store.engine import transaction


def set_draining(runtime: Runtime, draining: bool, *, actor: str) -> None:
    """Turn new demand away (on), or take it again (off); running agents go on either way."""
    with transaction(runtime.engine) as connection:
        settings.put(connection, "draining", draining, changed_by=actor)
        audit.record(connection, actor, "drain", "cluster", {"draining": draining})
    if not draining:
        runtime.hints.admit()
        runtime.hints.fill()


def is_draining(runtime: Runtime) -> bool:
    """Whether new demand is turned away."""
    with transaction(runtime.engine) as connection:
        return settings.is_draining(connection)


def resume(runtime: Runtime, *, actor: str) -> bool:
    """Let admission and reclaim go on after a failover of the database; False: nothing was held.

    From then on rows are believed again: compute that none stands for is removed.
    """
    with transaction(runtime.engine) as connection:
        lifted = failovers.lift(connection)
        if lifted:
            audit.record(connection, actor, "resume", "cluster", {})
    if lifted:
        runtime.hints.admit()
        runtime.hints.fill()
    return lifted


def audited(runtime: Runtime, limit: int) -> list[AuditRow]:
    """What operators did last, newest first."""
    with transaction(runtime.engine) as connection:
        return audit.recent(connection, limit)


def set_machine_draining(runtime: Runtime, machine_id: str, draining: bool, *, actor: str) -> None:
    """Stop giving a machine new work, or let it take some again; its agents go on.

    Raises:
        NotFound: no worker ever announced a machine of that id.
    """
    with transaction(runtime.engine) as connection:
        if not machines.set_draining(connection, machine_id, draining):
            raise NotFound(
                f"no machine `{machine_id}` is known",
                hint="`kici-scaler machines list` names them",
            )
        effects = (
            ending.give_back_reserved(
                connection,
                why=f"machine `{machine_id}` is draining",
                machine_id=machine_id,
            )
            if draining
            else ending.Effects()
        )
        audit.record(connection, actor, "machine-drain", machine_id, {"draining": draining})
    ending.announce(runtime, effects)
    runtime.hints.fill()
    if not draining:
        runtime.hints.admit()
