"""The steps of one backend type in one place: its pumps, and what looks after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, runtime_checkable

import structlog

from config.settings import Settings
from kici_scaler.domain.scalers import BackendType
from kici_scaler.service import destroy, inspect, start
from kici_scaler.service.destroy import DestroyOrder
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.start import StartOrder
from workers.contract import Backend, Deadline
from workers.errors import BackendError
from workers.host.budget import Budget
from workers.host.inspecting import Inspector
from workers.host.looking import Looks
from workers.host.preparing import Preparer
from workers.host.pump import Pump
from workers.host.removing import Remover
from workers.host.starting import Starter
from workers.host.stocktaking import Stocktaker
from workers.host.together import Together
from workers.host.unsealing import Unsealer
from workers.ledger import MachineLedger

log = structlog.get_logger(__name__)

START_SLOTS = 32
DESTROY_SLOTS = 16
ATTEND_SECONDS = 10.0


@runtime_checkable
class Attends(Protocol):
    """A backend that has something to see to every few seconds, and when an agent connects."""

    def attend(self, deadline: Deadline) -> Sequence[str]:
        """See to it; the agents whose compute has ended since the last call.

        Raises:
            BackendError: it could not be seen to.
        """


def _now() -> datetime:
    return datetime.now(UTC)


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Plot:
    """Where a site is and what is made there.

    Attributes:
        machine_id: the place its rows name; None for compute that is pinned to no machine.
        serves: the scalers that it is limited to; None is all of its type.
        ledger: of the machine, where its pools are shared with other installations.
        fleet_machine: the name of a machine of a fleet; None for a worker's own host.
        is_open: whether new steps may be taken at this moment.
        now: the machine's clock.
    """

    kind: BackendType
    machine_id: str | None
    serves: Collection[str] | None = None
    ledger: MachineLedger | None = None
    fleet_machine: str | None = None
    is_open: Callable[[], bool] = _always
    now: Callable[[], datetime] = _now


class Site:
    """Starts, destroys and finds the compute of one place."""

    def __init__(self, runtime: Runtime, settings: Settings, backend: Backend, plot: Plot) -> None:
        self._runtime = runtime
        self._backend = backend
        self._plot = plot
        installation = settings.installation_id
        budget = Budget(runtime, plot.ledger, plot.kind.value)
        starter = Starter(
            runtime,
            backend,
            installation,
            settings.agent_url,
            budget,
            Unsealer(settings.seal_keys_path),
            Together(partial(start.record_all_created, runtime)),
        )
        self.starts: Pump[StartOrder] = Pump("start", START_SLOTS, self._take_starts, starter)
        self.destroys: Pump[DestroyOrder] = Pump(
            "destroy",
            DESTROY_SLOTS,
            self._take_destroys,
            Remover(runtime, backend, installation, budget),
        )
        self.preparer = Preparer(
            runtime, backend, plot.kind, plot.serves, fleet_machine=plot.fleet_machine
        )
        self._looks = Looks(Inspector(runtime, backend, installation))
        self.take_stock = Stocktaker(
            runtime,
            backend,
            installation,
            plot.kind.value,
            plot.machine_id,
            self.inspect,
            plot.now,
        )

    def prime(self) -> None:
        """Take what waits already."""
        self.starts.prime()
        self.destroys.prime()

    @property
    def tokens(self) -> list[int]:
        """The leases under which steps run here."""
        starting = [each.row.token for each in self.starts.running]
        return starting + [each.row.token for each in self.destroys.running]

    def inspect(self, agent_ids: Sequence[str]) -> int:
        """See to what the backend has to, and to these agents; returns how many had ended.

        Compute is looked at where nobody sees its agent, and where the backend says it ended.
        """
        wanted = sorted({*agent_ids, *self._ended()})
        return self._looks.at(inspect.to_inspect(self._runtime, wanted)) if wanted else 0

    def _ended(self) -> Sequence[str]:
        if not isinstance(self._backend, Attends):
            return ()
        try:
            return self._backend.attend(Deadline.after(ATTEND_SECONDS))
        except BackendError as error:
            log.warning("the backend could not see to its agents", problem=str(error))
            return ()

    def close(self, *, wait: bool) -> None:
        """Take nothing more; optionally let what runs be applied. Agents are left alone."""
        self.starts.close(wait=wait)
        self.destroys.close(wait=wait)
        self._looks.close()

    def _take_starts(self, most: int) -> tuple[Sequence[StartOrder], bool]:
        if not self._plot.is_open():
            return (), False
        kind, place = self._plot.kind, self._plot.machine_id
        return start.take(self._runtime, backend_type=kind, machine_id=place, most=most)

    def _take_destroys(self, most: int) -> tuple[Sequence[DestroyOrder], bool]:
        if not self._plot.is_open():
            return (), False
        kind, place = self._plot.kind, self._plot.machine_id
        return destroy.take(self._runtime, backend_type=kind, machine_id=place, most=most)
