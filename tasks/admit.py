"""One admission pass over what waits."""

from __future__ import annotations

from config.celery_settings import ADMIT
from kici_scaler.broker import task_names
from kici_scaler.checkpoints import reached
from kici_scaler.service import admit
from kici_scaler.store.section import Contended
from tasks.app import app
from tasks.process import clear_mark, runtime


@app.task(name=task_names.ADMIT_WAITING, max_retries=0)
def admit_waiting() -> dict[str, object]:
    """Decide what waits; whoever holds the section is doing the same already."""
    reached("admit.received")
    clear_mark(task_names.ADMIT_WAITING, ADMIT)
    try:
        done = admit.run_pass(runtime())
    except Contended:
        return {"outcome": "contended"}
    return {"admitted": done.admitted, "refused": done.refused}
