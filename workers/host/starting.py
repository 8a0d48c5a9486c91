"""One start: the order goes to the backend, what came of it goes to the row."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from kici_scaler.checkpoints import reached
from kici_scaler.domain.scalers import Amount
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.errors import KiciError
from kici_scaler.service import start
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.start import Created, StartOrder, Told
from kici_scaler.storable import storable
from kici_scaler.store.events import EventType
from workers.contract import (
    Backend,
    ComputeRef,
    Deadline,
    LifecycleEvent,
    LifecycleKind,
    SpawnOrder,
    failure_detail,
)
from workers.credentials import RegistryCredentials
from workers.errors import BackendError, NotDone, NotOwner, OutcomeUnknown, Unreachable
from workers.forwarded import forwarded_environment
from workers.host.budget import Budget
from workers.host.persist import persist
from workers.host.unsealing import Unsealer
from workers.host.wanted import StillWanted

log = structlog.get_logger(__name__)

MOST_ATTEMPTS = 3
"""How often a start that certainly did nothing is tried before it counts as failed."""
RETRY_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts compute for the orders it is given."""

    runtime: Runtime
    backend: Backend
    installation_id: str
    gateway_url: str
    budget: Budget
    unsealer: Unsealer
    record: Callable[[Created], SpawnState | None]
    """Applies what was made."""
    environment: MappingProxyType[str, str] = field(
        default_factory=lambda: MappingProxyType(forwarded_environment(os.environ))
    )

    def __call__(self, order: StartOrder) -> None:
        """Spawn, then record what exists, what failed, or that it is not known."""
        if not self.budget.reserve(order):
            return
        told: list[Told] = []
        reached("start.taken")
        try:
            registry = self.unsealer.registry(order.row.sealed_registry)
            made = self.backend.spawn(
                self._spawn_order(order, told, registry),
                Deadline.after(max(1.0, order.row.seconds_left)),
            )
        except NotOwner:
            log.info("a newer lease owns this spawn", agent_id=order.row.agent_id)
        except Unreachable as error:
            self._give_back(order, error)
        except NotDone as error:
            if order.row.attempts < MOST_ATTEMPTS:
                self._try_later(order, error)
            else:
                self._failed(order, error, told)
        except OutcomeUnknown as error:
            self._try_later(order, error)
        except BackendError as error:
            self._failed(order, error, told)
        else:
            self._created(order, dict(made.ref), told)

    def _spawn_order(
        self, order: StartOrder, told: list[Told], registry: RegistryCredentials | None
    ) -> SpawnOrder:
        row = order.row

        def report(event: LifecycleEvent) -> None:
            # The end of a failed start is recorded with its consequences, not here.
            if event.kind is not LifecycleKind.FAILED:
                detail = storable(event.detail)
                told.append(Told(EventType(event.kind.value), detail, event.timestamp_ms))

        return SpawnOrder(
            installation_id=self.installation_id,
            scaler=row.scaler,
            agent_id=row.agent_id,
            lease_token=row.token,
            label_set=order.label_set,
            gateway_url=order.scaler.orchestrator_url or self.gateway_url,
            agent_token=order.agent_token,
            labels=row.agent_labels,
            job_id=row.job_id,
            run_id=row.run_id,
            job_image=row.image,
            registry=registry,
            limits=Amount(row.limit_cpu_millis, row.limit_memory_bytes),
            environment=self.environment,
            options=order.scaler.options,
            still_wanted=StillWanted(self.runtime, order),
            report=report,
        )

    def _created(self, order: StartOrder, ref: dict[str, str], told: list[Told]) -> None:
        reached("start.acted")
        self.budget.name_compute(order, ref)
        state = persist(
            lambda: self.record(Created(order, ref, told)),
            for_seconds=order.windows.lease_seconds,
        )
        reached("start.applied")
        if state is None:
            self._undo(order, ref)
        elif state is SpawnState.DESTROYING:
            log.info("spawned after it was called off; will be destroyed",
                     agent_id=order.row.agent_id)  # fmt: skip

    def _undo(self, order: StartOrder, ref: dict[str, str]) -> None:
        """The lease was lost: remove what this token made, unless a newer one took it over."""
        row = order.row
        reference = ComputeRef(
            self.installation_id, row.scaler, row.agent_id, row.token, ref, order.scaler.options
        )
        try:
            self.backend.reclaim(reference, Deadline.after(60))
            self.budget.release(row.pool, row.agent_id)
        except NotOwner:
            log.info("a newer lease took the compute over", agent_id=row.agent_id)

    def _failed(self, order: StartOrder, error: BackendError, told: list[Told]) -> None:
        tail = tuple(map(storable, error.log_tail))
        why = storable(f"{error}; {error.hint}" if error.hint else str(error))
        log.warning("start failed", agent_id=order.row.agent_id, error=why)
        persist(
            lambda: start.record_failure(
                self.runtime,
                order,
                failure_detail(why, tail),
                told=told,
                job_caused=error.job_caused,
                log_tail=tail,
            ),
            for_seconds=order.windows.lease_seconds,
        )

    def _give_back(self, order: StartOrder, error: Unreachable) -> None:
        """The machine is at fault, not the scaler: its job waits again, uncounted."""
        log.warning("machine not reached", agent_id=order.row.agent_id, error=str(error))
        why = storable(f"its machine could not be reached: {error}")
        given_back = persist(
            lambda: start.return_unstarted(self.runtime, order, why=why),
            for_seconds=order.windows.lease_seconds,
        )
        if given_back:
            self.budget.release(order.row.pool, order.row.agent_id)

    def _try_later(self, order: StartOrder, error: KiciError) -> None:
        log.warning("start will be repeated", agent_id=order.row.agent_id, error=str(error))
        persist(
            lambda: start.release(self.runtime, order, pause_seconds=RETRY_PAUSE_SECONDS),
            for_seconds=order.windows.lease_seconds,
        )
