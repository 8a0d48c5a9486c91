"""Statements that meet on the same rows take their locks in one order: spawn first.

Each test stops one caller between its statements, lets the other run into it, and goes on. Two
orders would be a deadlock, which the database ends by failing one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection

from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.store import agents, endings, gateways, inspections, request_ends, requests
from tests.support.rows import Rows, new_request

S = SpawnState


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def _adopt(connection: Connection, agent: str, number: int = 2) -> bool:
    return agents.adopt(
        connection,
        agent_id=agent,
        spawn_id=agent,
        labels=("linux",),
        gate=(),
        facts={},
        gateway="gw-2",
        connection_number=number,
    )


def _meet(
    rows: Rows,
    pool: ThreadPoolExecutor,
    first: Callable[[Connection], Any],
    other: Callable[[Connection], Any],
    then: Callable[[Connection], Any],
    *,
    waits: bool = True,
) -> tuple[Any, Any]:
    """`first`, then `other` elsewhere until it is stuck, then `then`; what the last two answer."""
    with rows.begin() as connection:
        first(connection)
        running: Future[Any] = pool.submit(rows.call, other)
        if waits:
            rows.wait_until_blocked()
        else:
            running.result(20)
        answer = then(connection)
    return answer, running.result(20)


def test_an_agent_returns_while_its_old_connection_is_reported_closed(
    rows: Rows, pool: ThreadPoolExecutor
) -> None:
    rows.gateway("gw-1")
    rows.gateway("gw-2")
    agent = rows.agent(rows.spawn(S.BUSY, job=rows.request(state="running")))
    adopted, closed = _meet(
        rows,
        pool,
        lambda connection: agents.lock_spawn(connection, agent),
        lambda connection: agents.disconnect(
            connection, gateway="gw-1", connections=[(agent, 1)], settle_seconds=2
        ),
        lambda connection: _adopt(connection, agent),
    )
    assert adopted
    assert closed == frozenset()
    assert rows.get("agents", agent)["unseen_since"] is None


def test_an_agent_returns_while_its_dead_gateway_is_forsaken(
    rows: Rows, pool: ThreadPoolExecutor
) -> None:
    rows.gateway("gw-1")
    rows.gateway("gw-2")
    agent = rows.agent(rows.spawn(S.BUSY, job=rows.request(state="running")))
    rows.shift("gateways", "gw-1", dead_at=0.0)
    adopted, _ = _meet(
        rows,
        pool,
        lambda connection: agents.lock_spawn(connection, agent),
        gateways.forsake,
        lambda connection: _adopt(connection, agent),
        waits=False,
    )
    assert adopted
    assert rows.get("agents", agent)["unseen_since"] is None


def test_an_agent_returns_elsewhere_while_its_old_gateway_reasserts_it(
    rows: Rows, pool: ThreadPoolExecutor
) -> None:
    rows.gateway("gw-1b")
    rows.gateway("gw-2")
    agent = rows.agent(rows.spawn(S.BUSY, job=rows.request(state="running")), gateway="gw-1b")
    adopted, reasserted = _meet(
        rows,
        pool,
        lambda connection: agents.lock_spawn(connection, agent),
        lambda connection: agents.reassert(connection, "gw-1b", [(agent, 1)]),
        lambda connection: _adopt(connection, agent),
    )
    assert adopted
    assert reasserted == frozenset()
    assert rows.get("agents", agent)["gateway"] == "gw-2"


def test_an_agent_that_returned_while_its_exit_was_judged_is_not_missing(
    rows: Rows, pool: ThreadPoolExecutor
) -> None:
    rows.gateway("gw-2")
    agent = rows.agent(rows.busy()[0], gateway=None)
    adopted, is_missing = _meet(
        rows,
        pool,
        lambda connection: agents.lock_spawn(connection, agent),
        lambda connection: inspections.still_missing(connection, agent, S.BUSY),
        lambda connection: _adopt(connection, agent),
    )
    assert adopted
    assert not is_missing


def test_a_job_is_accepted_while_it_is_called_off(rows: Rows, pool: ThreadPoolExecutor) -> None:
    job = rows.request(state="assigned")
    agent = rows.spawn(S.IDLE, job=job)
    state, payload = _meet(
        rows,
        pool,
        lambda connection: request_ends.spawn_of(connection, job),
        lambda connection: request_ends.start_running(connection, job_id=job, agent_id=agent),
        lambda connection: request_ends.cancel(connection, job_id=job, reason="enough"),
    )
    assert state == "assigned"
    assert payload is None or rows.get("scale_requests", job)["state"] == "running"


def test_a_spawn_ends_while_its_job_is_called_off(rows: Rows, pool: ThreadPoolExecutor) -> None:
    job = rows.request(state="assigned")
    agent = rows.spawn(S.BOOTING, job=job)

    def end(connection: Connection) -> list[Any]:
        ended = endings.begin(
            connection,
            [agent],
            states=[S.BOOTING],
            reason=DestroyReason.SPAWN_TIMEOUT,
            why="late",
            quarantine_seconds=60,
        )
        return request_ends.bereave(
            connection, [each.job_id for each in ended if each.job_id], cause="late"
        )

    _, bereaved = _meet(
        rows,
        pool,
        lambda connection: request_ends.spawn_of(connection, job),
        end,
        lambda connection: request_ends.cancel(connection, job_id=job, reason="enough"),
    )
    assert [each.state for each in bereaved] == ["cancelled"]


def test_batches_that_share_jobs_in_another_order_are_both_stored(
    rows: Rows, pool: ThreadPoolExecutor
) -> None:
    for _ in range(15):
        names = [new_request().job_id for _ in range(400)]
        batches = [names, names[::-1], names[200:] + names[:200], names[::-1]]
        stored = [
            pool.submit(rows.call, requests.insert, [new_request(name) for name in batch])
            for batch in batches
        ]
        fresh = [done.result() for done in stored]
        assert sum(len(each) for each in fresh) == len(names)
        assert frozenset().union(*fresh) == set(names)
