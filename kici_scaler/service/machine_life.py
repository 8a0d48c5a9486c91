"""A machine's own life: announced by its backend worker, kept fresh while that lives."""

from __future__ import annotations

from kici_scaler.service.runtime import Runtime
from kici_scaler.store import machines, settings, starts
from kici_scaler.store.engine import transaction
from kici_scaler.store.machines import Announcement


def announce(runtime: Runtime, machine: Announcement) -> None:
    """Say what this machine is and that it takes work; wakes whoever waited for one."""
    with transaction(runtime.engine) as connection:
        machines.announce(connection, machine)
    runtime.hints.admit(soon=True)
    runtime.hints.fill(soon=True)


def beat(runtime: Runtime, machine: Announcement, *, holds_leases: bool) -> None:
    """Keep the machine fresh and this worker's leases alive, in one transaction."""
    with transaction(runtime.engine) as connection:
        if not machines.heartbeat(connection, machine.machine_id, machine.backend_type):
            machines.announce(connection, machine)
        if holds_leases:
            windows = settings.windows(connection)
            starts.extend(connection, holder=runtime.owner, lease_seconds=windows.lease_seconds)
