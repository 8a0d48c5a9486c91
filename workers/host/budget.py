"""The machine pool's shared budget around a start and a destroy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from kici_scaler.domain.resources import Need
from kici_scaler.service import start
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.start import StartOrder
from workers.host.persist import persist
from workers.ledger import LedgerUnavailable, MachineLedger, TurnedDown
from workers.ledger.compute import pid_namespace

log = structlog.get_logger(__name__)

_Change = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """This machine's ledger, as the steps of one backend type use it."""

    runtime: Runtime
    ledger: MachineLedger | None
    """None where no other installation's use can be known: on machines reached from afar."""
    kind: str

    def reserve(self, order: StartOrder) -> bool:
        """Take the share of a start; when there is none, give its reservation back."""
        row = order.row
        if row.pool is None or order.pool_cap is None or self.ledger is None:
            return True
        need = Need(row.cpu_millis, row.memory_bytes)
        try:
            answer = self.ledger.reserve(row.pool, order.pool_cap, row.agent_id, self.kind, need)
        except LedgerUnavailable as error:
            log.error("machine ledger not available", pool=row.pool, error=str(error))
            self._give_back(order, f"the machine's ledger is not available: {error}", {})
            return False
        if isinstance(answer, TurnedDown):
            foreign = {
                "pool": row.pool,
                "cpuMillis": answer.foreign.cpu_millis,
                "memoryBytes": answer.foreign.memory_bytes,
            }
            why = f"pool `{row.pool}` is filled by another installation on its machine"
            self._give_back(order, why, foreign)
            return False
        return True

    def name_compute(self, order: StartOrder, ref: Mapping[str, str]) -> None:
        """Say what the share stands for."""
        ledger = self.ledger
        if order.row.pool is not None and ledger is not None:
            compute = {**ref, "pid_namespace": pid_namespace()}
            self._quietly(
                order.row.pool,
                lambda pool: ledger.name_compute(pool, order.row.agent_id, compute),
            )

    def release(self, pool: str | None, agent_id: str) -> None:
        """Give a share back once its compute is gone; one that stays is seen to be gone later."""
        ledger = self.ledger
        if pool is not None and ledger is not None:
            self._quietly(pool, lambda name: ledger.release(name, agent_id))

    def _quietly(self, pool: str, change: _Change) -> None:
        try:
            change(pool)
        except LedgerUnavailable as error:
            log.warning("machine ledger not changed", pool=pool, error=str(error))

    def _give_back(self, order: StartOrder, why: str, foreign: Mapping[str, object]) -> None:
        log.info("reservation given back", agent_id=order.row.agent_id, why=why)
        persist(
            lambda: start.give_back(self.runtime, order, why=why, foreign_use=foreign),
            for_seconds=order.windows.lease_seconds,
        )
