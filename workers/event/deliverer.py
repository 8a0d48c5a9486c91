"""One try of one delivery: the event is built, sent, and what came of it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from kici_scaler.checkpoints import reached
from kici_scaler.domain.delivery import Acted, Attempt, DeliveryState
from kici_scaler.sealing import SealingError
from kici_scaler.service import deliver, emissions
from kici_scaler.service.deliver import DeliveryOrder
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.deliveries import TakenDelivery
from workers.contract import Deadline
from workers.event.codes import SealedCodes
from workers.event.router import Router
from workers.event.webhook import Webhooks
from workers.host.persist import persist

log = structlog.get_logger(__name__)

APPLY_SECONDS = 30.0
WEBHOOKS = ("https://", "http://")


@dataclass(frozen=True, slots=True)
class Deliverer:
    """Tries the deliveries it is given."""

    runtime: Runtime
    codes: SealedCodes
    webhooks: Webhooks
    router: Router
    source: str

    def __call__(self, order: DeliveryOrder) -> None:
        """Tell the target once; what it did, or may have done, goes to the row."""
        reached("deliver.taken")
        attempt = self._try(order.row, Deadline(order.give_up_at))
        reached("deliver.acted")
        recorded = persist(
            lambda: deliver.record(self.runtime, order, attempt), for_seconds=APPLY_SECONDS
        )
        _tell(order.row, attempt, None if recorded is None else recorded.state)

    def _try(self, row: TakenDelivery, deadline: Deadline) -> Attempt:
        if not row.target.startswith(WEBHOOKS):
            told = emissions.event_of(self.source, row, code=None)
            return self.router.send(row.target, told, event_id=row.request_id)
        try:
            event = self._whole_event(row)
        except SealingError as error:
            return Attempt(Acted.NO, f"its code cannot be opened: {error}", final=True)
        return self.webhooks.send(
            row.target,
            event,
            event_id=row.request_id,
            at=row.attempted_at,
            deadline=deadline,
        )

    def _whole_event(self, row: TakenDelivery) -> Mapping[str, object]:
        provision = row.provision
        code = None if provision is None else self.codes.open(provision.sealed_code)
        return emissions.event_of(self.source, row, code=code)


def _tell(row: TakenDelivery, attempt: Attempt, state: DeliveryState | None) -> None:
    told = {
        "kind": row.kind.value,
        "agent_id": row.agent_id,
        "target": row.target,
        "attempt": row.attempts,
    }
    if state is None:
        log.warning("event tried under a lost lease", why=attempt.why, **told)
    elif attempt.acted is Acted.YES:
        log.info("event delivered", **told)
    elif state is DeliveryState.PENDING:
        log.warning("event not delivered yet", why=attempt.why, **told)
    else:
        log.error("event not delivered", state=state.value, why=attempt.why, **told)
