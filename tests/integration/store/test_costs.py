"""What is looked for all the time is found by an index: its cost is what is found, not what is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, Engine, event

from kici_scaler.store import (
    claims,
    deliveries,
    delivery_views,
    due,
    events,
    failures,
    outcomes,
    ready_jobs,
    request_ends,
    tokens,
)
from kici_scaler.store.engine import transaction
from kici_scaler.store.ready_jobs import LabelSetPlace
from tests.support.rows import Rows

LOOKS: dict[str, tuple[Callable[[Connection], object], str]] = {
    "claims to forget": (
        lambda connection: claims.purge(connection, older_seconds=60),
        "COALESCE(expires_at, created_at) <",
    ),
    "deliveries to forget": (
        lambda connection: delivery_views.purge(connection, older_seconds=60),
        "closed_at <",
    ),
    "owed deliveries to forget": (
        lambda connection: delivery_views.purge(connection, older_seconds=60),
        "created_at <",
    ),
    "due spawns": (
        lambda connection: due.pick(connection, most=9, first_pause=5, machine_stale_seconds=30),
        "due_at <=",
    ),
    "the longest overdue": (due.oldest_overdue_seconds, "due_at <="),
    "due deliveries": (
        lambda connection: deliveries.due(connection, most=9, first_pause=5),
        "due_at <=",
    ),
    "outcomes to forget": (
        lambda connection: outcomes.purge(connection, older_seconds=60),
        "updated_at <",
    ),
    "requests to forget": (
        lambda connection: request_ends.purge(connection, older_seconds=60),
        "finished_at <",
    ),
    "events to forget": (lambda connection: events.purge(connection, older_seconds=60), "at <"),
    "tokens to forget": (tokens.purge_expired, "expires_at <"),
    "the agent of a pool that waits longest": (
        lambda connection: ready_jobs.look(
            connection, LabelSetPlace("local", 0, ("linux",)), most=1
        ),
        "label_set_index =",
    ),
    "recent failures": (
        lambda connection: failures.recent(connection, within_seconds=60),
        "updated_at >=",
    ),
}


def _plan(engine: Engine, look: Callable[[Connection], object]) -> str:
    """How the server answers the statement of a look when it may not read a whole table.

    It is prepared, and planned for any values: what suits the values of a moment is no better.
    """
    said: list[str] = []

    def hear(_connection: object, cursor: object, *_: object) -> None:
        said.append(cursor.query.decode())  # type: ignore[attr-defined]  # psycopg2's own

    with transaction(engine) as connection:
        look(connection)
        event.listen(connection, "after_cursor_execute", hear)
        look(connection)
        event.remove(connection, "after_cursor_execute", hear)
        # Of so few rows a whole index is as cheap as a part of it, and sorting costs nothing.
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        connection.exec_driver_sql("SET LOCAL enable_sort = off")
        connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        explained = connection.exec_driver_sql("EXPLAIN " + said[-1].replace("%", "%%"))
        return "\n".join(explained.scalars())


@pytest.mark.parametrize("what", LOOKS)
def test_an_index_answers(rows: Rows, engine: Engine, what: str) -> None:
    rows.spawn(due=-1)
    look, condition = LOOKS[what]
    plan = _plan(engine, look)
    conditions = [line for line in plan.splitlines() if "Index Cond:" in line]
    assert any(condition in line for line in conditions), plan


def test_forgetting_a_request_finds_its_spawns_by_an_index(rows: Rows, engine: Engine) -> None:
    """The server looks for spawns of every request that is deleted, in whatever state."""
    rows.spawn()
    with transaction(engine) as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        plan = "\n".join(
            connection.exec_driver_sql(
                "EXPLAIN SELECT 1 FROM spawns WHERE job_id = 'job' FOR KEY SHARE"
            ).scalars()
        )
    assert "Index Cond: (job_id = 'job'::text)" in plan, plan
