"""Steps at a backend: each task wakes the worker's pump; the rows say what there is to do."""

from __future__ import annotations

from collections.abc import Sequence

from config.celery_settings import BACKEND_KINDS, destroy_queue, spawn_queue
from kici_scaler.broker import task_names
from kici_scaler.checkpoints import reached
from tasks.app import app
from tasks.process import clear_mark, host


def _declare(kind: str) -> None:
    start_name, destroy_name = task_names.spawn_task(kind), task_names.destroy_task(kind)

    @app.task(shared=False, name=start_name, max_retries=0)
    def spawn(*, machine: str | None = None) -> dict[str, object]:
        """Start what is reserved here, as far as slots are free."""
        reached("spawn.received")
        clear_mark(start_name, spawn_queue(kind, machine))
        return {"started": host().starts.prime()}

    @app.task(shared=False, name=destroy_name, max_retries=0)
    def destroy(*, machine: str | None = None) -> dict[str, object]:
        """Tear down what is ending here."""
        reached("destroy.received")
        clear_mark(destroy_name, destroy_queue(kind, machine))
        return {"taken": host().destroys.prime()}

    @app.task(shared=False, name=task_names.inspect_task(kind), max_retries=0)
    def inspect(*, agents: Sequence[str], machine: str | None = None) -> dict[str, object]:
        """Look whether the compute of agents that nobody sees still runs."""
        reached("inspect.received")
        return {"ended": host().inspect(agents)}


for each in BACKEND_KINDS:
    _declare(each)
