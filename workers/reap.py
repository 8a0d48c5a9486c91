"""Removing what was left behind on a machine whose database and Redis are not there to ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from kici_scaler.domain.scalers import BackendType, Cluster, Scaler
from workers.contract import BackendContext, Deadline
from workers.registry import open_backend

SECONDS = 120.0
"""What each backend may take."""


@runtime_checkable
class ReapsOrphans(Protocol):
    """A backend that can tell what nobody can still need from the machine alone."""

    def reap_orphans(self, scalers: Sequence[Scaler], deadline: Deadline) -> Mapping[str, int]:
        """Remove it, and say how much, by scaler.

        What may run a job stays. Raises `BackendError` when something could not be looked at
        or removed; what could be is removed all the same.
        """


def reap_orphans(cluster: Cluster, context: BackendContext) -> Mapping[str, int]:
    """Have every backend of the configuration reap that can; how much, by scaler.

    Raises:
        BackendError: something could not be looked at or removed.
    """
    counts: Counter[str] = Counter()
    for type_ in BackendType:
        scalers = [each for each in cluster.scalers if each.type is type_]
        if not scalers or not type_.is_local:
            continue
        backend = open_backend(type_, context)
        if isinstance(backend, ReapsOrphans):
            counts.update({each.name: 0 for each in scalers})
            counts.update(backend.reap_orphans(scalers, Deadline.after(SECONDS)))
    return counts
