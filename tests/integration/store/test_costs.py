"""What is looked for all the time is found by an index: its cost is what is found, not what is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, Engine, event, text

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
    ticks,
    tokens,
)
from kici_scaler.store.engine import transaction
from kici_scaler.store.ready_jobs import Gift, LabelSetPlace
from kici_scaler.store.requests import NewRequest
from tests.support.rows import Rows

GIFT = Gift(NewRequest("job", "run", "digest", ("linux",)), "nobody", "local", "linux")
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
    "the agent that is given": (
        lambda connection: ready_jobs.give(connection, [GIFT], offer_seconds=1),
        "agent_id = w.agent_id",
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
    with transaction(engine) as connection:
        # Of so few rows a whole index is as cheap as a part of it, and sorting costs nothing.
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        connection.exec_driver_sql("SET LOCAL enable_sort = off")
        return _explained(connection, look)


def _explained(connection: Connection, look: Callable[[Connection], object]) -> str:
    said: list[str] = []

    def hear(_connection: object, cursor: object, *_: object) -> None:
        said.append(cursor.query.decode())  # type: ignore[attr-defined]  # psycopg2's own

    look(connection)
    event.listen(connection, "after_cursor_execute", hear)
    look(connection)
    event.remove(connection, "after_cursor_execute", hear)
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


_MANY = """
    INSERT INTO gateways (incarnation, host, pid) VALUES ('gw-1', 'h', 1), ('gw-2', 'h', 1);
    UPDATE gateways SET dead_at = last_heartbeat WHERE incarnation = 'gw-2';
    INSERT INTO agents (agent_id, labels, gate, gateway, connection_number)
        SELECT 'agent-' || n, '{}', '{}', 'gw-1', 1 FROM generate_series(1, 5000) AS n;
    INSERT INTO scale_requests (job_id, run_id, digest, labels, max_requeues, state, static_agent,
                                static_deadline_at, static_due_at)
        SELECT 'job-' || n, 'run', 'digest', '{}', 2, CASE WHEN n % 2 = 0 THEN 'running'
                ELSE 'waiting' END, CASE WHEN n % 2 = 0 THEN 'agent-' || n END,
            CASE WHEN n % 2 = 0 THEN timestamptz 'infinity' END,
            CASE WHEN n % 2 = 0 THEN timestamptz 'infinity' END
        FROM generate_series(1, 5000) AS n;
    INSERT INTO event_deliveries (agent_id, scaler, kind, target, due_at)
        SELECT 'agent-' || n, 'local', 'scale-up', 'target', 'infinity'
        FROM generate_series(1, 5000) AS n;
    INSERT INTO spawns (agent_id, state, scaler, backend_type, revision_id, label_set_index,
                        label_set, agent_labels, gate, warm, spawn_slots, spawn_timeout_seconds,
                        cpu_millis, memory_bytes, owner, machine_id, due_at)
        SELECT 'spawn-' || n, state, scaler, backend_type, revision_id, label_set_index,
            label_set, agent_labels, gate, warm, spawn_slots, spawn_timeout_seconds,
            cpu_millis, memory_bytes, owner, machine_id, 'infinity'
        FROM spawns, generate_series(1, 5000) AS n;
    ANALYZE gateways, agents, scale_requests, event_deliveries, spawns
"""
"""Rows among which any that is looked for seems to be near, by what the server has counted."""


def test_a_tick_with_nothing_to_do_reads_no_table_that_grows(rows: Rows, engine: Engine) -> None:
    rows.spawn()
    with engine.connect() as connection:
        connection.execute(text(_MANY))
        connection.exec_driver_sql("UPDATE scale_requests SET state = 'assigned'"
                                   " WHERE state = 'waiting'")  # fmt: skip
        plan = _explained(
            connection,
            lambda each: ticks.begin(each, "sweep", interval_seconds=1, longest_gap=10),
        )
    for index in (
        "agents_of_gateway on agents",
        "spawns_due on spawns",
        "event_deliveries_due on event_deliveries",
        "scale_requests_waiting on scale_requests",
        "scale_requests_static_due on scale_requests",
    ):
        assert f"Scan using {index}" in plan, plan
    for table in ("agents", "spawns", "event_deliveries", "scale_requests"):
        assert f"Seq Scan on {table}" not in plan, plan
