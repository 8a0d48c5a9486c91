"""One look at compute whose agent nobody sees: only a certain end is reported."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from kici_scaler.checkpoints import reached
from kici_scaler.service import inspect
from kici_scaler.service.inspect import InspectOrder
from kici_scaler.service.runtime import Runtime
from kici_scaler.storable import storable
from workers.contract import (
    CAPTURED_LINES,
    Backend,
    ComputeRef,
    Deadline,
    ExitCause,
    ExitKind,
    failure_detail,
)
from workers.errors import NotDone

log = structlog.get_logger(__name__)

LOOK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Inspector:
    """Asks the backend how compute ended, and says so."""

    runtime: Runtime
    backend: Backend
    installation_id: str

    def __call__(self, order: InspectOrder) -> bool:
        """Whether the spawn was ended for what was found."""
        row = order.row
        reference = ComputeRef(
            self.installation_id, row.scaler, row.agent_id, row.token, row.ref, order.options
        )
        try:
            cause = self.backend.exit_cause(reference, Deadline.after(LOOK_SECONDS))
        except NotDone as error:
            log.info("machine could not be asked", agent_id=row.agent_id, error=str(error))
            return False
        reached("inspect.looked")
        if cause is None:
            return False
        tail = tuple(map(storable, cause.log_tail[-CAPTURED_LINES:]))
        return inspect.record_exit(
            self.runtime,
            order,
            why=failure_detail(storable(sentence(cause)), tail if order.row.job_id is None else ()),
            log_tail=tail,
            spool=cause.spool,
            with_machine=cause.with_machine,
        )


def sentence(cause: ExitCause) -> str:
    """An exit cause in words."""
    said = _said(cause)
    return said if not cause.detail or cause.detail in said else f"{said}: {cause.detail}"


def _said(cause: ExitCause) -> str:
    match cause.kind:
        case ExitKind.EXITED:
            return f"its agent exited with code {cause.exit_code}"
        case ExitKind.SIGNALLED:
            return f"its agent was ended by signal {cause.signal}"
        case ExitKind.OUT_OF_MEMORY:
            return "its agent was killed for passing its memory limit"
        case ExitKind.STOPPED:
            return "its agent was stopped"
        case ExitKind.START_FAILED:
            return "its agent could not be started"
        case ExitKind.VANISHED | ExitKind.ABSENT:
            return "its compute is no longer there"
