"""Steps at a backend: each task wakes the worker's pump; the rows say what there is to do."""

from __future__ import annotations

from collections.abc import Sequence

from config.celery_settings import BACKEND_KINDS, destroy_queue, spawn_queue
from kici_scaler.broker import task_names
from kici_scaler.checkpoints import reached
from tasks.app import app
from tasks.process import clear_mark, host, waiting_looks


def _declare(kind: str) -> None:
    start_name, destroy_name = task_names.spawn_task(kind), task_names.destroy_task(kind)
    inspect_name = task_names.inspect_task(kind)

    @app.task(shared=False, name=start_name, max_retries=0)
    def spawn(*, machine: str | None = None) -> dict[str, object]:
        """Start what is reserved here, as far as slots are free."""
        reached("spawn.received")
        clear_mark(start_name, spawn_queue(kind, machine))
        site = host().site(machine)
        return {"started": site.starts.prime() if site else 0}

    @app.task(shared=False, name=destroy_name, max_retries=0)
    def destroy(*, machine: str | None = None) -> dict[str, object]:
        """Tear down what is ending here."""
        reached("destroy.received")
        clear_mark(destroy_name, destroy_queue(kind, machine))
        site = host().site(machine)
        return {"taken": site.destroys.prime() if site else 0}

    @app.task(shared=False, name=inspect_name, max_retries=0)
    def inspect(*, agents: Sequence[str], machine: str | None = None) -> dict[str, object]:
        """Look after agents here: whether the compute of those nobody sees still runs."""
        reached("inspect.received")
        queue = destroy_queue(kind, machine)
        clear_mark(inspect_name, queue)
        wanted = {*agents, *waiting_looks(inspect_name, queue)}
        site = host().site(machine)
        return {"ended": site.inspect(sorted(wanted)) if site else 0}


for each in BACKEND_KINDS:
    _declare(each)
