"""The dispatcher's router says that it has an event."""

from __future__ import annotations

from kici_scaler.broker import task_names
from kici_scaler.errors import NotFound
from kici_scaler.service import router
from tasks.app import app
from tasks.process import runtime
from tasks.request import INTAKE_OPTIONS


@app.task(shared=False, name=task_names.ACKNOWLEDGE_DELIVERY, **INTAKE_OPTIONS)
def acknowledge_delivery(*, delivery_id: str) -> dict[str, object]:
    """Note that the router has an event; until it says so it is told again."""
    try:
        state = router.acknowledge(runtime(), delivery_id)
    except NotFound as error:
        return {"deliveryId": delivery_id, "error": str(error)}
    return {"deliveryId": delivery_id, "state": state.value}
