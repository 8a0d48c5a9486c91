"""One destroy: keep what the agent left to say, remove its compute, confirm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from kici_scaler.checkpoints import reached
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import destroy
from kici_scaler.service.destroy import DestroyOrder
from kici_scaler.service.runtime import Runtime
from kici_scaler.storable import storable
from workers.contract import CAPTURED_LINES, Backend, ComputeRef, Deadline, ExitCause, ExitKind
from workers.errors import BackendError, NotDone, NotOwner
from workers.host.budget import Budget
from workers.host.persist import persist

log = structlog.get_logger(__name__)

DESTROY_SECONDS = 120.0
LOOK_SECONDS = 5.0
APPLY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Remover:
    """Destroys the compute of the orders it is given."""

    runtime: Runtime
    backend: Backend
    installation_id: str
    budget: Budget

    def __call__(self, order: DestroyOrder) -> None:
        """Destroy; the row goes only when the backend has confirmed that nothing is left."""
        row = order.row
        reference = ComputeRef(
            self.installation_id, row.scaler, row.agent_id, row.token, row.ref, order.options
        )
        ended = self._how_it_ended(reference) if row.ref is not None else None
        tail = self._last_words(reference) if row.ref is not None else ()
        reached("destroy.taken")
        try:
            self.backend.destroy(reference, Deadline.after(DESTROY_SECONDS))
        except NotOwner:
            log.info("a newer lease destroys this agent", agent_id=row.agent_id)
            return
        except BackendError as error:
            self._postpone(order, error)
            return
        reached("destroy.acted")
        self.budget.release(row.pool, row.agent_id)
        persist(
            lambda: destroy.confirm(self.runtime, order, exit_cause=ended, log_tail=tail),
            for_seconds=APPLY_SECONDS,
        )
        reached("destroy.applied")

    def _how_it_ended(self, reference: ComputeRef) -> Mapping[str, object] | None:
        """What goes into its outcome; what still runs ends by this very destroy."""
        try:
            cause = self.backend.exit_cause(reference, Deadline.after(LOOK_SECONDS))
        except NotDone as error:
            log.info("exit cause not known", agent_id=reference.agent_id, error=str(error))
            return None
        return describe(cause) or {"kind": ExitKind.STOPPED.value, "detail": "by its teardown"}

    def _last_words(self, reference: ComputeRef) -> tuple[str, ...]:
        try:
            lines = self.backend.logs(reference, CAPTURED_LINES, Deadline.after(LOOK_SECONDS))
        except NotDone as error:
            log.info("no output could be kept", agent_id=reference.agent_id, error=str(error))
            return ()
        return tuple(map(storable, lines))

    def _postpone(self, order: DestroyOrder, error: BackendError) -> None:
        state = persist(lambda: destroy.postpone(self.runtime, order), for_seconds=APPLY_SECONDS)
        level = log.error if state is SpawnState.QUARANTINED else log.warning
        level("destroy not confirmed; will be repeated",
              agent_id=order.row.agent_id, error=str(error))  # fmt: skip


def describe(cause: ExitCause | None) -> Mapping[str, object] | None:
    """An exit cause as it stands on an outcome."""
    if cause is None:
        return None
    described: dict[str, object] = {"kind": cause.kind.value}
    for name, value in (
        ("exitCode", cause.exit_code),
        ("signal", cause.signal),
        ("detail", storable(cause.detail) or None),
    ):
        if value is not None:
            described[name] = value
    return described
