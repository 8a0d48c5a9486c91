"""Taking stock of a machine: compute without a row is reclaimed, rows without compute told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog

from kici_scaler.service import inventory
from kici_scaler.service.runtime import Runtime
from workers.contract import Backend, ComputeRef, Deadline, FoundCompute
from workers.errors import BackendError, NotDone, PartlyListed

log = structlog.get_logger(__name__)

LIST_SECONDS = 60.0
RECLAIM_SECONDS = 60.0


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Stock:
    """What one stocktaking found and did."""

    found: int = 0
    """How many computes were there, ended ones too."""
    reclaimed: int = 0
    ended: int = 0
    is_whole: bool = field(default=False, compare=False)
    """Whether the machine could be listed in full."""


@dataclass(frozen=True, slots=True)
class Stocktaker:
    """Compares what a backend really holds with the rows.

    Args:
        inspect: looks at the compute of agents nobody sees; returns how many had ended.
        now: the machine's clock, which compute is dated by.
    """

    runtime: Runtime
    backend: Backend
    installation_id: str
    backend_type: str
    machine_id: str | None
    inspect: Callable[[list[str]], int]
    now: Callable[[], datetime] = _now

    def __call__(self) -> Stock:
        """One stocktaking; of a machine that is listed in part, nothing that lacks is judged."""
        try:
            found = self.backend.inventory(self.installation_id, Deadline.after(LIST_SECONDS))
        except PartlyListed as error:
            log.warning("machine listed in part; nobody is missed", error=str(error))
            return Stock(len(error.found), self._reclaim_orphans(error.found))
        except NotDone as error:
            log.warning("machine could not be listed; nothing concluded", error=str(error))
            return Stock()
        inventory.compare(
            self.runtime,
            [each.agent_id for each in found],
            backend_type=self.backend_type,
            machine_id=self.machine_id,
        )
        reclaimed = self._reclaim_orphans(found)
        here = {each.agent_id for each in found if each.running}
        unseen = inventory.unseen_here(
            self.runtime, backend_type=self.backend_type, machine_id=self.machine_id
        )
        missing = [agent_id for agent_id in unseen if agent_id not in here]
        ended = self.inspect(missing) if missing else 0
        return Stock(len(found), reclaimed, ended, is_whole=True)

    def _reclaim_orphans(self, found: tuple[FoundCompute, ...]) -> int:
        orphans = inventory.without_row(self.runtime, [each.agent_id for each in found])
        return sum(self._reclaim(each) for each in found if each.agent_id in orphans)

    def _reclaim(self, compute: FoundCompute) -> bool:
        grace = timedelta(seconds=inventory.RECLAIM_GRACE_SECONDS)
        if self.now() - compute.created_at < grace:
            return False
        reference = ComputeRef(
            self.installation_id,
            compute.scaler,
            compute.agent_id,
            compute.lease_token,
            compute.ref,
        )
        try:
            removed = self.backend.reclaim(reference, Deadline.after(RECLAIM_SECONDS))
        except BackendError as error:
            log.warning("orphan not removed yet", agent_id=compute.agent_id, error=str(error))
            return False
        if removed:
            log.warning("removed compute that no row stands for", agent_id=compute.agent_id)
        return removed
