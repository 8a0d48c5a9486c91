"""The due rows: picked by one, looked at less and less often, judged by what is true now."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import due
from kici_scaler.store.due import DueRow
from tests.support.rows import Rows

S = SpawnState


def _pick(rows: Rows, *, most: int = 9, pause: float = 5.0) -> list[DueRow]:
    found: list[DueRow] = rows.call(
        due.pick, most=most, first_pause=pause, machine_stale_seconds=30
    )
    return found


def _left(rows: Rows, agent: str) -> float:
    return float(
        rows.one(
            "SELECT extract(epoch FROM due_at - clock_timestamp()) FROM spawns"
            " WHERE agent_id = :agent",
            agent=agent,
        )
    )


def test_only_what_is_due_is_looked_at_and_the_longest_due_first(rows: Rows) -> None:
    first, second = rows.spawn(due=-10), rows.spawn(due=-20)
    rows.spawn(due=10)
    rows.spawn(S.IDLE, due=None)
    assert [each.due.agent_id for each in _pick(rows, most=1)] == [second]
    assert [each.due.agent_id for each in _pick(rows)] == [first]
    assert _pick(rows) == []


@pytest.mark.parametrize(
    ("state", "longest"), [(S.RESERVED, 60), (S.BUSY, 15), (S.BOOTING, 15), (S.QUARANTINED, 3600)]
)
def test_the_pauses_double_up_to_the_longest_of_the_state(
    rows: Rows, state: SpawnState, longest: float
) -> None:
    job = rows.request(state="running") if state is S.BUSY else None
    agent, pauses = rows.spawn(state, job=job, due=-1), []
    for _ in range(12):
        _pick(rows)
        pauses.append(round(_left(rows, agent)))
        rows.shift("spawns", agent, due_at=-0.1)
    assert pauses == [min(5 * 2**times, longest) for times in range(12)]


def test_a_due_row_is_seen_as_it_is(rows: Rows) -> None:
    rows.machine()
    rows.gateway()
    job = rows.request(state="assigned")
    agent = rows.agent(rows.spawn(S.IDLE, job=job, due=-1, attempts=3))
    rows.shift("spawns", agent, deadline_at=-1.0)
    (found,) = _pick(rows)
    seen = found.due
    assert (seen.agent_id, seen.state, seen.scaler) == (agent, S.IDLE, "local")
    assert (seen.backend_type, seen.machine_id, seen.job_id) == ("bare-metal", "m1", job)
    assert (seen.past_deadline, seen.lease_held, seen.attempts) == (True, False, 3)
    assert (seen.seconds_absent, seen.adopter_dead, seen.machine_reachable) == (None, False, True)
    assert found.gateway == "gw-1"


def test_a_lease_that_lasts_is_seen(rows: Rows) -> None:
    agent = rows.spawn(S.SPAWNING, due=-1, lease_token=1)
    rows.execute(
        "UPDATE spawns SET lease_holder = 'me', lease_expires_at = now() + interval '60 s'"
    )
    assert _pick(rows)[0].due.lease_held
    rows.shift("spawns", agent, lease_expires_at=-1.0, due_at=-1.0)
    assert not _pick(rows)[0].due.lease_held


def test_an_absence_is_measured_by_the_databases_clock(rows: Rows) -> None:
    rows.gateway()
    agent = rows.spawn(S.BUSY, job=rows.request(state="running"), due=-1)
    rows.agent(agent, unseen_since=rows.one("SELECT now() - interval '100 s'"))
    (found,) = _pick(rows)
    assert found.due.seconds_absent is not None
    assert 100 <= found.due.seconds_absent < 110
    assert (found.due.adopter_dead, found.gateway) == (False, None)


def test_a_dead_gateway_is_seen(rows: Rows) -> None:
    rows.gateway()
    rows.agent(rows.spawn(S.IDLE, due=-1))
    rows.shift("gateways", "gw-1", dead_at=0.0)
    assert _pick(rows)[0].due.adopter_dead


@pytest.mark.parametrize(
    ("columns", "silent", "is_reachable"),
    [
        ({}, 0.0, True),
        ({"state": "draining"}, 0.0, True),
        ({"state": "unreachable"}, 0.0, False),
        ({}, 31.0, False),
        ({"state": "draining"}, 31.0, False),
    ],
)
def test_a_machine_is_reachable_while_its_worker_is_heard_of(
    rows: Rows, columns: dict[str, str], silent: float, is_reachable: bool
) -> None:
    rows.machine(**columns)
    rows.shift("machines", "m1", last_heartbeat=-silent)
    rows.spawn(due=-1)
    assert _pick(rows)[0].due.machine_reachable is is_reachable


def test_an_unknown_machine_is_not_reachable_and_no_machine_always_is(rows: Rows) -> None:
    rows.machine(kind="container")
    rows.spawn(due=-2)
    rows.spawn(machine_id=None, backend_type="event", due=-1)
    found = {each.due.machine_id: each.due.machine_reachable for each in _pick(rows)}
    assert found == {"m1": False, None: True}


def test_what_another_works_on_is_skipped_and_not_waited_for(rows: Rows) -> None:
    held, free = rows.spawn(due=-2), rows.spawn(due=-1)
    with rows.begin() as connection:
        due.pick(connection, most=1, first_pause=5, machine_stale_seconds=30)
        assert [each.due.agent_id for each in _pick(rows)] == [free]
    assert _left(rows, held) > 0


def test_a_due_row_is_picked_by_one_of_many(rows: Rows) -> None:
    for _ in range(60):
        rows.spawn(due=-1)
    gate = threading.Barrier(6)

    def picker(_: int) -> list[str]:
        gate.wait(20)
        return [each.due.agent_id for _ in range(10) for each in _pick(rows, most=3)]

    with ThreadPoolExecutor(6) as pool:
        picked = [agent for agents in pool.map(picker, range(6)) for agent in agents]
    assert len(picked) == len(set(picked)) == 60


def test_how_far_behind_the_sweep_is(rows: Rows) -> None:
    assert rows.call(due.oldest_overdue_seconds) == 0
    rows.spawn(due=50)
    assert rows.call(due.oldest_overdue_seconds) == 0
    rows.spawn(due=-50)
    assert 50 <= rows.call(due.oldest_overdue_seconds) < 60
