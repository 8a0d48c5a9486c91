"""One pass over the warm pools."""

from __future__ import annotations

from config.celery_settings import WARM
from kici_scaler.broker import task_names
from kici_scaler.checkpoints import reached
from kici_scaler.service import fill
from kici_scaler.store.section import Contended
from tasks.app import app
from tasks.process import clear_mark, runtime


@app.task(shared=False, name=task_names.WARM_FILL, max_retries=0)
def warm_fill() -> dict[str, object]:
    """Decide what waits, then fill, reap and replace; whoever holds the section comes first."""
    reached("fill.received")
    clear_mark(task_names.WARM_FILL, WARM)
    try:
        done = fill.fill(runtime())
    except Contended:
        runtime().hints.fill(soon=True)
        return {"outcome": "contended"}
    return {"spawned": done.spawned, "ended": done.ended, "short": done.short}
