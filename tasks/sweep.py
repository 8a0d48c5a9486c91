"""Regular duties; any number of clocks may fire them."""

from __future__ import annotations

from kici_scaler.broker import task_names
from kici_scaler.checkpoints import reached
from kici_scaler.service import publish, retention, sweep
from tasks.app import app
from tasks.process import event_stream, runtime


@app.task(shared=False, name=task_names.SWEEP_DUE, max_retries=0)
def sweep_due() -> dict[str, object]:
    """Look at due rows, hint who can act, end what is over."""
    reached("sweep.received")
    swept = sweep.sweep(runtime())
    if not swept.owned_tick:
        return {"outcome": "duplicate"}
    return {"due": swept.looked_at, "ended": swept.ended, "quarantined": swept.quarantined}


@app.task(shared=False, name=task_names.PUBLISH_EVENTS, max_retries=0)
def publish_events() -> dict[str, object]:
    """Hand lifecycle events to whoever listens."""
    handed = publish.publish(runtime(), event_stream())
    return {"outcome": "duplicate"} if handed is None else {"events": handed}


@app.task(shared=False, name=task_names.SWEEP_RETENTION, max_retries=0)
def sweep_retention() -> dict[str, object]:
    """Forget what is past its retention."""
    forgotten = retention.forget(runtime())
    return {"outcome": "duplicate"} if forgotten is None else dict(forgotten)
