"""Regular duties; any number of clocks may fire them."""

from __future__ import annotations

from kici_scaler.broker import task_names
from kici_scaler.checkpoints import reached
from kici_scaler.service import hand_over, retention, sweep
from tasks.app import app
from tasks.process import event_stream, runtime


@app.task(name=task_names.SWEEP_DUE, max_retries=0)
def sweep_due() -> dict[str, object]:
    """Look at due rows, hint who can act, end what is over."""
    reached("sweep.received")
    swept = sweep.sweep(runtime())
    if not swept.owned_tick:
        return {"outcome": "duplicate"}
    return {"due": swept.looked_at, "ended": swept.ended, "quarantined": swept.quarantined}


@app.task(name=task_names.HAND_OVER_EVENTS, max_retries=0)
def hand_over_events() -> dict[str, object]:
    """Hand lifecycle events to whoever listens."""
    handed = hand_over.hand_over(runtime(), event_stream())
    return {"outcome": "duplicate"} if handed is None else {"events": handed}


@app.task(name=task_names.SWEEP_RETENTION, max_retries=0)
def sweep_retention() -> dict[str, object]:
    """Forget what is past its retention."""
    forgotten = retention.forget(runtime())
    return {"outcome": "duplicate"} if forgotten is None else dict(forgotten)
