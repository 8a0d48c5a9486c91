"""One admission pass over what waits."""

from __future__ import annotations

from config.celery_settings import ADMIT
from kici_scaler.broker import task_names
from kici_scaler.broker.hints import LEFT
from kici_scaler.checkpoints import reached
from kici_scaler.metrics import count, declared
from kici_scaler.service import admit
from kici_scaler.store.section import Contended
from tasks.app import app
from tasks.process import clear_mark, runtime

TRIGGERS = {values[0] for values in declared.REDISPATCH.known}


@app.task(shared=False, name=task_names.ADMIT_WAITING, max_retries=0)
def admit_waiting(*, trigger: str = "sweep") -> dict[str, object]:
    """Decide what waits; whoever holds the section is doing the same already."""
    reached("admit.received")
    clear_mark(task_names.ADMIT_WAITING, ADMIT)
    try:
        done = admit.run_left(runtime()) if trigger == LEFT else admit.run_pass(runtime())
    except Contended:
        return {"outcome": "contended"}
    if done is None:
        return {"outcome": "later"}
    if trigger in TRIGGERS:
        count(declared.REDISPATCH, trigger, n=done.admitted)
    return {"admitted": done.admitted, "refused": done.refused}
