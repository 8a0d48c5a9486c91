"""Leases on spawns to be started: slots, order, takes again, and whoever came too late."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection

from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.store import agents, endings, start_takes, starts
from kici_scaler.store.events import EventType, NewEvent
from kici_scaler.store.start_takes import TakenStart
from kici_scaler.store.starts import MadeStart
from tests.support.rows import KIND, MACHINE, Rows

S = SpawnState


def _take(
    connection: Connection, *, most: int = 100, holder: str = "me", machine: str | None = MACHINE,
    kind: str = KIND, lease: float = 30.0,
) -> list[TakenStart]:  # fmt: skip
    taken = start_takes.take(
        connection, kind=kind, machine_id=machine, holder=holder, most=most, lease_seconds=lease
    )
    return list(taken.rows)


def _created(connection: Connection, agent: str, token: int) -> SpawnState | None:
    return starts.record_created(connection, [_made(agent, token)]).get(token)


def _made(agent: str, token: int, pid: str = "4711") -> MadeStart:
    return MadeStart(agent, token, {"pid": pid}, boot_floor=300, look_after=2)


def test_a_take_hands_out_all_a_backend_needs(rows: Rows) -> None:
    job = rows.request(state="assigned", image="alpine:3")
    agent = rows.spawn(
        job=job, pool="p", limit_cpu_millis=2000, limit_memory_bytes=4096, label_set_index=3
    )
    (taken,) = rows.call(_take)
    row = rows.get("spawns", agent)
    assert (taken.agent_id, taken.job_id, taken.run_id, taken.image) == (
        agent, job, "run", "alpine:3",
    )  # fmt: skip
    assert (taken.machine_id, taken.pool, taken.label_set_index) == (MACHINE, "p", 3)
    assert (taken.cpu_millis, taken.limit_cpu_millis) == (1000, 2000)
    assert (taken.memory_bytes, taken.limit_memory_bytes) == (1024, 4096)
    assert (taken.token, taken.attempts) == (row["lease_token"], 1)
    assert 299 < taken.seconds_left <= 300
    assert row["lease_holder"] == "me"
    assert abs(row["due_at"] - row["lease_expires_at"]).total_seconds() < 1


def test_each_take_has_a_token_of_its_own_that_is_higher_than_all_before(rows: Rows) -> None:
    for _ in range(3):
        rows.spawn()
    first = {each.token for each in rows.call(_take, most=2)}
    (last,) = rows.call(_take)
    assert len(first) == 2
    assert last.token > max(first)


def test_no_more_are_taken_than_asked_for_whether_new_or_let_go(rows: Rows) -> None:
    for _ in range(5):
        rows.spawn()
        agent = rows.spawn(S.SPAWNING)
        rows.shift("spawns", agent, deadline_at=60.0)
    assert len(rows.call(_take, most=3)) == 3
    assert len(rows.call(_take, most=1)) == 1
    assert len(rows.call(_take)) == 6


def test_what_another_let_go_comes_before_what_is_new(rows: Rows) -> None:
    rows.spawn()
    agent = rows.spawn(S.SPAWNING)
    rows.shift("spawns", agent, deadline_at=60.0)
    assert [each.agent_id for each in rows.call(_take, most=1)] == [agent]


def test_slots_are_counted_for_each_scaler_on_each_machine_and_kind(rows: Rows) -> None:
    for scaler, machine, kind in (
        ("a", "m1", KIND), ("b", "m1", KIND), ("a", "m2", KIND), ("a", "m1", "container"),
    ):  # fmt: skip
        for _ in range(4):
            rows.spawn(scaler=scaler, machine_id=machine, backend_type=kind, spawn_slots=2)
    assert sorted(each.scaler for each in rows.call(_take)) == ["a", "a", "b", "b"]
    assert rows.call(_take) == []
    assert len(rows.call(_take, machine="m2")) == 2
    assert len(rows.call(_take, kind="container")) == 2


def test_slots_of_an_event_scaler_are_counted_for_the_cluster(rows: Rows) -> None:
    for _ in range(4):
        rows.spawn(scaler="cloud", machine_id=None, backend_type="event", spawn_slots=3)
    assert len(rows.call(_take, machine=None, kind="event")) == 3
    assert rows.call(_take, machine=None, kind="event") == []


def test_the_first_reserved_is_the_first_taken(rows: Rows) -> None:
    agents_ = [rows.spawn(spawn_slots=1) for _ in range(3)]
    for place, agent in enumerate(reversed(agents_)):
        rows.shift("spawns", agent, reserved_at=-100.0 + place)
    order = []
    for _ in agents_:
        (taken,) = rows.call(_take)
        order.append(taken.agent_id)
        assert rows.call(_created, taken.agent_id, taken.token) is S.BOOTING
    assert order == agents_[::-1]


@pytest.mark.parametrize("state", [S.BOOTING, S.IDLE, S.DESTROYING])
def test_a_slot_is_free_again_once_the_start_is_over(rows: Rows, state: SpawnState) -> None:
    rows.spawn(state, spawn_slots=1, job=rows.request(state="assigned"))
    rows.spawn(spawn_slots=1)
    assert len(rows.call(_take)) == 1


def test_a_start_under_a_lease_is_not_taken_by_another(rows: Rows) -> None:
    rows.spawn()
    rows.call(_take, lease=60)
    assert rows.call(_take, holder="other") == []


def test_a_start_whose_lease_ran_out_is_taken_again_on_the_same_clock(rows: Rows) -> None:
    agent = rows.spawn()
    (first,) = rows.call(_take)
    rows.shift("spawns", agent, lease_expires_at=-1.0, deadline_at=100.0)
    started = rows.get("spawns", agent)["spawning_at"]
    (second,) = rows.call(_take, holder="other")
    assert (second.attempts, second.agent_id) == (2, agent)
    assert second.token > first.token
    assert second.seconds_left <= 100
    assert rows.get("spawns", agent)["spawning_at"] == started


def test_a_start_past_its_deadline_is_left_to_the_sweep(rows: Rows) -> None:
    agent = rows.spawn()
    rows.call(_take)
    rows.shift("spawns", agent, lease_expires_at=-1.0, deadline_at=-0.001)
    assert rows.call(_take) == []


def test_a_start_given_back_is_taken_again_after_its_pause(rows: Rows) -> None:
    agent = rows.spawn()
    (taken,) = rows.call(_take)
    rows.call(starts.release, agent_id=agent, token=taken.token, pause_seconds=60)
    assert rows.call(_take) == []
    rows.shift("spawns", agent, retry_at=-1.0)
    assert len(rows.call(_take)) == 1


def test_sixteen_takers_at_once_never_exceed_the_slots(rows: Rows) -> None:
    for _ in range(60):
        rows.spawn(spawn_slots=7)
    gate = threading.Barrier(16)
    most_seen: list[int] = []

    def taker(number: int) -> int:
        done = 0
        gate.wait(30)
        for _ in range(12):
            for taken in rows.call(_take, most=3, holder=str(number)):
                most_seen.append(rows.count("spawns", "state = 'spawning'"))
                assert rows.call(_created, taken.agent_id, taken.token) is S.BOOTING
                done += 1
        return done

    with ThreadPoolExecutor(16) as pool:
        done = sum(pool.map(taker, range(16)))
    assert done == 60
    assert max(most_seen) <= 7


def test_no_two_takers_get_the_same_spawn(rows: Rows) -> None:
    for _ in range(80):
        rows.spawn()
    gate = threading.Barrier(8)

    def taker(number: int) -> list[str]:
        gate.wait(30)
        return [
            each.agent_id
            for _ in range(10)
            for each in rows.call(_take, most=2, holder=str(number))
        ]

    with ThreadPoolExecutor(8) as pool:
        taken = [agent for agents_ in pool.map(taker, range(8)) for agent in agents_]
    assert len(taken) == len(set(taken)) == 80


def _taken_again_while(rows: Rows, other: Any) -> SpawnState:
    """A start whose holder let go is taken again while `other` moves it; where it ends."""
    agent = rows.spawn(S.SPAWNING)
    rows.shift("spawns", agent, deadline_at=60.0)
    with ThreadPoolExecutor(1) as pool:
        with rows.begin() as connection:
            other(connection, agent)
            taking = pool.submit(rows.call, _take)
            rows.wait_until_blocked()
        assert taking.result(20) == []
    return SpawnState(rows.get("spawns", agent)["state"])


def test_an_agent_that_registers_meanwhile_is_not_started_again(rows: Rows) -> None:
    found = _taken_again_while(
        rows,
        lambda connection, agent: agents.connect_spawn(
            connection, agent_id=agent, adopter="gw-1", offer_seconds=30
        ),
    )
    assert found is S.IDLE


def test_a_spawn_that_is_condemned_meanwhile_is_not_started_again(rows: Rows) -> None:
    found = _taken_again_while(
        rows,
        lambda connection, agent: endings.begin(
            connection,
            [agent],
            states=[S.SPAWNING],
            reason=DestroyReason.SPAWN_TIMEOUT,
            why="late",
            quarantine_seconds=60,
        ),
    )
    assert found is S.DESTROYING


def test_a_reservation_that_is_withdrawn_meanwhile_is_not_started(rows: Rows) -> None:
    agent = rows.spawn()
    with ThreadPoolExecutor(1) as pool:
        with rows.begin() as connection:
            assert endings.withdraw(connection, [agent])
            taking = pool.submit(rows.call, _take)
            rows.wait_until_blocked()
        assert taking.result(20) == []
    assert rows.count("spawns") == 0


@pytest.mark.parametrize(
    ("state", "after"),
    [(S.SPAWNING, S.BOOTING), (S.IDLE, S.IDLE), (S.BUSY, S.BUSY), (S.DESTROYING, S.DESTROYING)],
)
def test_what_was_made_is_recorded_whatever_the_state_has_become(
    rows: Rows, state: SpawnState, after: SpawnState
) -> None:
    job = rows.request(state="running")
    agent = rows.spawn(job=job)
    (taken,) = rows.call(_take)
    columns = {"state": state.value, "busy_at": taken and rows.one("SELECT now()")}
    if state is S.DESTROYING:
        columns |= {"destroy_reason": "shutdown", "destroying_at": columns["busy_at"]}
    rows.set("spawns", agent, **columns)
    assert rows.call(_created, agent, taken.token) is after
    row = rows.get("spawns", agent)
    assert (row["backend_ref"], row["created_with"]) == ({"pid": "4711"}, taken.token)
    assert (row["lease_holder"], row["lease_expires_at"]) == (None, None)


def test_a_booting_agent_has_the_longer_of_its_timeout_and_the_floor(rows: Rows) -> None:
    for timeout, expected in ((100.0, 300), (600.0, 600)):
        agent = rows.spawn(spawn_timeout_seconds=timeout)
        (taken,) = rows.call(_take)
        rows.call(_created, agent, taken.token)
        left = rows.one(
            "SELECT extract(epoch FROM deadline_at - clock_timestamp()) FROM spawns"
            " WHERE agent_id = :agent",
            agent=agent,
        )
        assert expected - 5 < float(left) <= expected


def test_many_are_recorded_at_once_with_what_each_told(rows: Rows) -> None:
    for _ in range(3):
        rows.spawn()
    first, lost, last = rows.call(_take)
    rows.set("spawns", lost.agent_id, lease_token=lost.token + 100)
    told = [
        NewEvent(EventType.READY, each.agent_id, None, None, detail)
        for each in (last, lost, first)
        for detail in ("one", "two")
    ]
    made = [_made(each.agent_id, each.token, each.agent_id) for each in (first, lost, last)]
    states = rows.call(starts.record_created, made, told)
    assert states == {first.token: S.BOOTING, last.token: S.BOOTING}
    for each in (first, last):
        assert rows.get("spawns", each.agent_id)["backend_ref"] == {"pid": each.agent_id}
    assert rows.get("spawns", lost.agent_id)["backend_ref"] is None
    found = rows.all("SELECT agent_id, detail FROM events ORDER BY id")
    assert [tuple(each) for each in found] == [
        (last.agent_id, "one"), (last.agent_id, "two"),
        (first.agent_id, "one"), (first.agent_id, "two"),
    ]  # fmt: skip


def test_recording_twice_is_refused_the_second_time(rows: Rows) -> None:
    agent = rows.spawn()
    (taken,) = rows.call(_take)
    assert rows.call(_created, agent, taken.token) is S.BOOTING
    assert rows.call(_created, agent, taken.token) is None


def test_leases_are_kept_alive_only_while_they_last_and_their_holder_works_on(rows: Rows) -> None:
    mine, lapsed, other, dropped = (rows.spawn() for _ in range(4))
    tokens = {each.agent_id: each.token for each in rows.call(_take, lease=5)}
    rows.shift("spawns", lapsed, lease_expires_at=-0.1)
    rows.set("spawns", other, lease_holder="other")
    worked_on = [tokens[each] for each in (mine, lapsed, other)]
    assert dropped in tokens
    assert rows.call(starts.extend, holder="me", tokens=worked_on, lease_seconds=500) == 1
    left = "lease_expires_at > clock_timestamp() + interval '400 s'"
    assert rows.count("spawns", f"agent_id = :agent AND {left}", agent=mine) == 1
    assert rows.count("spawns", left) == 1


def test_extending_never_brings_a_look_forward(rows: Rows) -> None:
    agent = rows.spawn()
    (taken,) = rows.call(_take, lease=5)
    rows.shift("spawns", agent, due_at=900.0)
    rows.call(starts.extend, holder="me", tokens=[taken.token], lease_seconds=30)
    assert rows.count("spawns", "due_at > clock_timestamp() + interval '800 s'") == 1


def test_a_step_that_hangs_does_not_keep_its_lease_past_the_bound_of_a_destroy(rows: Rows) -> None:
    """Else an agent whose start or destroy never returns would never be set aside or alarmed."""
    rows.spawn(due=-1)
    (taken,) = rows.call(_take)
    rows.execute(
        "UPDATE spawns SET state = 'destroying', destroy_reason = 'spawn-timeout',"
        " destroying_at = clock_timestamp()"
    )
    for left, kept in ((10.0, 1), (-1.0, 0)):
        rows.shift("spawns", taken.agent_id, deadline_at=left)
        found = rows.call(starts.extend, holder="me", tokens=[taken.token], lease_seconds=30)
        assert found == kept


def test_an_agent_that_came_early_is_not_looked_at_for_the_lease_on_its_start(rows: Rows) -> None:
    agent = rows.spawn()
    (taken,) = rows.call(_take, lease=5)
    rows.set("spawns", agent, state="idle", due_at=None)
    assert rows.call(starts.extend, holder="me", tokens=[taken.token], lease_seconds=30) == 1
    assert rows.get("spawns", agent)["due_at"] is None


@pytest.mark.parametrize(
    ("state", "is_wanted"),
    [(S.SPAWNING, True), (S.IDLE, True), (S.BUSY, True), (S.DESTROYING, False)],
)
def test_a_start_is_wanted_while_its_token_leads_and_nobody_tears_it_down(
    rows: Rows, state: SpawnState, is_wanted: bool
) -> None:
    agent = rows.spawn(job=rows.request(state="running"))
    (taken,) = rows.call(_take)
    columns: dict[str, Any] = {"state": state.value, "busy_at": rows.one("SELECT now()")}
    if state is S.DESTROYING:
        columns |= {"destroy_reason": "idle", "destroying_at": columns["busy_at"]}
    rows.set("spawns", agent, **columns)
    assert rows.call(starts.still_wanted, agent, taken.token) is is_wanted
    assert rows.call(starts.still_wanted, agent, taken.token - 1) is False


def test_a_start_is_no_longer_wanted_once_its_lease_ran_out(rows: Rows) -> None:
    agent = rows.spawn()
    (taken,) = rows.call(_take)
    rows.shift("spawns", agent, lease_expires_at=-0.1)
    assert rows.call(starts.still_wanted, agent, taken.token) is False


def test_a_start_is_undone_only_on_its_first_attempt_and_before_anything_was_made(
    rows: Rows,
) -> None:
    fresh, again, made = rows.spawn(), rows.spawn(), rows.spawn()
    taken = {each.agent_id: each.token for each in rows.call(_take)}
    rows.set("spawns", again, attempts=2)
    rows.set("spawns", made, backend_ref="{}")
    undone = {
        agent: rows.call(starts.undo, agent_id=agent, token=taken[agent])
        for agent in (fresh, again, made)
    }
    assert undone == {fresh: True, again: False, made: False}


@pytest.mark.parametrize(
    ("reserved", "slots", "most", "first", "second"),
    [
        pytest.param(0, 2, 9, (0, False), (0, False), id="nothing is there"),
        pytest.param(2, 2, 9, (2, False), (0, False), id="all are taken"),
        pytest.param(3, 2, 9, (2, True), (0, True), id="slots are full"),
        pytest.param(3, 9, 2, (2, True), (1, False), id="no more were asked for"),
    ],
)
def test_a_take_tells_whether_it_left_some(
    rows: Rows,
    reserved: int,
    slots: int,
    most: int,
    first: tuple[int, bool],
    second: tuple[int, bool],
) -> None:
    rows.spawn(machine_id="m2")
    for _ in range(reserved):
        rows.spawn(spawn_slots=slots)
    for expected in (first, second):
        taken = rows.call(start_takes.take, kind=KIND, machine_id=MACHINE, holder="me", most=most)
        assert (len(taken.rows), taken.left_some) == expected


def test_whether_spawns_wait_for_a_slot_is_asked_for_one_place(rows: Rows) -> None:
    rows.spawn()
    assert rows.call(start_takes.any_reserved, kind=KIND, machine_id=MACHINE)
    assert not rows.call(start_takes.any_reserved, kind=KIND, machine_id="m2")
    assert not rows.call(start_takes.any_reserved, kind="event", machine_id=None)
