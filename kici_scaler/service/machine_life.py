"""A machine's own life: announced by its backend worker, kept fresh while that lives.

Crash table: each is one transaction; what a killed worker did not tell, its successor does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.scalers import BackendType, Scaler
from kici_scaler.service import ending, revisions
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import machine_scalers, machines, retiring, settings, starts
from kici_scaler.store import revisions as revision_rows
from kici_scaler.store.engine import transaction
from kici_scaler.store.machines import Announcement


@dataclass(frozen=True, slots=True)
class Duties:
    """What a worker of one backend type has to be ready for, by one revision."""

    revision_id: int
    scalers: tuple[Scaler, ...] = ()
    leaving: tuple[Scaler, ...] = ()
    """Scalers that retire: agents of theirs may live on its machine."""

    def same_as(self, other: Duties) -> bool:
        """Whether another revision asked for the very same."""
        return (self.scalers, self.leaving) == (other.scalers, other.leaving)


def duties(
    runtime: Runtime,
    kind: BackendType,
    serves: Collection[str] | None,
    *,
    known: int,
    machine: str | None = None,
) -> Duties | None:
    """What the revision in force asks of a worker; None when that is the `known` one still.

    Args:
        serves: the scalers that this worker is limited to; None is all of its type.
        machine: of a fleet, for what is asked of it; None for the worker's own host.
    """
    with transaction(runtime.engine) as connection:
        if (revision_rows.active_id(connection) or 0) == known:
            return None
        revision = revisions.active(connection)
        leaving = [
            revisions.by_id(connection, revision_id).cluster.scaler(name)
            for name, revision_id in retiring.all_retiring(connection).items()
        ]

    def mine(scaler: Scaler | None) -> bool:
        if scaler is None or scaler.type is not kind:
            return False
        if machine is None:
            return not scaler.machines and (serves is None or scaler.name in serves)
        return scaler.machine(machine) is not None

    return Duties(
        revision.id,
        tuple(filter(mine, revision.cluster.scalers)),
        tuple(each for each in leaving if each is not None and mine(each)),
    )


def announce(runtime: Runtime, machine: Announcement, degraded: Mapping[str, str]) -> None:
    """Say what this machine is and that it takes work; wakes whoever waited for one.

    Args:
        degraded: why it cannot run certain scalers, by name.
    """
    with transaction(runtime.engine) as connection:
        _announce(connection, machine, degraded)
    runtime.hints.admit(soon=True)
    runtime.hints.fill(soon=True)


def beat(
    runtime: Runtime, machine: Announcement, *, tokens: Collection[int], degraded: Mapping[str, str]
) -> None:
    """Keep the machine fresh and the leases of this worker's steps alive, in one transaction."""
    with transaction(runtime.engine) as connection:
        if not machines.heartbeat(connection, machine.machine_id, machine.backend_type):
            _announce(connection, machine, degraded)
        if tokens:
            windows = settings.windows(connection)
            starts.extend(
                connection, holder=runtime.owner, tokens=tokens, lease_seconds=windows.lease_seconds
            )


def _announce(connection: Connection, machine: Announcement, degraded: Mapping[str, str]) -> None:
    machines.announce(connection, machine)
    machine_scalers.report(connection, machine.machine_id, machine.backend_type, degraded)


def report(runtime: Runtime, machine: Announcement, degraded: Mapping[str, str]) -> None:
    """Say which scalers the machine cannot run, and so that it can run all others of its type.

    What was reserved here for one of them and has not begun is given back; its jobs go
    elsewhere or wait. Compute that lives is left alone.
    """
    place = machine.machine_id, machine.backend_type
    with transaction(runtime.engine) as connection:
        changed = machine_scalers.report(connection, *place, degraded)
        lost = machine_scalers.reserved(connection, *place, changed.broken)
        why = f"machine `{machine.machine_id}` cannot run its scaler at the moment"
        effects = ending.give_back(connection, lost, why=why)
    ending.announce(runtime, effects)
    if changed.mended:
        runtime.hints.admit(soon=True)
        runtime.hints.fill(soon=True)
