"""Whether work is being done, by the rows it leaves behind."""

from __future__ import annotations

from sqlalchemy import Engine

from kici_scaler.errors import Unavailable
from kici_scaler.service.watch import SWEEP
from kici_scaler.store import due, duties, machines
from kici_scaler.store.engine import transaction


def check_sweep(engine: Engine, *, within_seconds: float) -> None:
    """Whether control workers take tasks from their queue.

    Raises:
        Unavailable: the sweep did not tick within that time.
    """
    with transaction(engine) as connection:
        age = duties.seconds_since(connection, SWEEP)
    if age is None or age > within_seconds:
        ticked = "never ticked" if age is None else f"ticked {age:.0f} s ago"
        raise Unavailable(
            f"the sweep {ticked}", hint="start a control worker and a beat, or look at their logs"
        )


def check_machine(
    engine: Engine, machine_id: str, backend_type: str, *, within_seconds: float
) -> None:
    """Whether the backend worker of a machine lives.

    Raises:
        Unavailable: it was not heard of within that time.
    """
    with transaction(engine) as connection:
        rows = machines.all_machines(connection, fresh_seconds=within_seconds)
    if not any(
        row.is_fresh and (row.machine_id, row.backend_type) == (machine_id, backend_type)
        for row in rows
    ):
        raise Unavailable(f"the {backend_type} worker of `{machine_id}` has not been heard of")


def check_due(engine: Engine, *, within_seconds: float) -> None:
    """Whether due rows are looked at.

    Raises:
        Unavailable: one has been overdue for longer.
    """
    with transaction(engine) as connection:
        overdue = due.oldest_overdue_seconds(connection)
    if overdue > within_seconds:
        raise Unavailable(f"a row has been overdue for {overdue:.0f} s")
