"""The way of a spawn into its end: begun once, confirmed under a lease, never forgotten."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection

from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.store import endings, outcomes
from kici_scaler.store.endings import Ended, TakenDestroy
from kici_scaler.store.warm_books import Wishes
from tests.support.rows import KIND, MACHINE, Rows

S = SpawnState
EXISTING = (S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY)


def _begin(
    connection: Connection, *agents: str, states: Collection[SpawnState] = EXISTING
) -> list[Ended]:
    return endings.begin(
        connection,
        agents,
        states=states,
        reason=DestroyReason.IDLE,
        why="surplus",
        quarantine_seconds=900,
    )


def _take(connection: Connection, *, holder: str = "me", most: int = 9) -> list[TakenDestroy]:
    return endings.take(
        connection, kind=KIND, machine_id=MACHINE, holder=holder, most=most, lease_seconds=30
    )


def _gone(connection: Connection, agent: str, token: int, **more: Any) -> bool:
    given: dict[str, Any] = {"exit_cause": None, "log_tail": (), **more}
    confirmed = endings.confirm_gone(connection, agent_id=agent, token=token, **given)
    return confirmed is not None


def _ending(rows: Rows, **more: Any) -> str:
    """A spawn that is being destroyed, with its outcome."""
    agent = rows.spawn(S.BOOTING, **more)
    with rows.begin() as connection:
        _begin(connection, agent)
        outcomes.record(connection, [agent])
    return agent


def test_whoever_moves_the_row_is_told_what_it_was(rows: Rows) -> None:
    rows.gateway()
    rows.machine()
    agent, job = rows.busy()
    rows.agent(agent)
    (ended,) = rows.call(_begin, agent)
    assert ended == Ended(agent, S.BUSY, "local", KIND, MACHINE, job, "run", "gw-1")
    row = rows.get("spawns", agent)
    assert (row["destroy_reason"], row["condemned_why"]) == ("idle", "surplus")
    assert (row["attempts"], row["due_count"], row["retry_at"]) == (0, 0, None)


@pytest.mark.parametrize(
    ("machine", "reachable"),
    [({}, True), ({"state": "draining"}, True), ({"state": "unreachable"}, False), (None, False)],
)
def test_it_is_told_whether_somebody_is_there_to_tear_it_down(
    rows: Rows, machine: dict[str, str] | None, reachable: bool
) -> None:
    if machine is not None:
        rows.machine(**machine)
    (ended,) = rows.call(_begin, rows.spawn(S.BOOTING))
    assert ended.is_reachable is reachable


def test_an_agent_that_nobody_sees_has_no_gateway_to_be_told_through(rows: Rows) -> None:
    agent, _ = rows.busy()
    rows.agent(agent, gateway=None)
    (ended,) = rows.call(_begin, agent)
    assert ended.gateway is None


def test_only_the_named_states_are_ended(rows: Rows) -> None:
    busy, idle = rows.busy()[0], rows.spawn(S.IDLE)
    ended = rows.call(_begin, busy, idle, states=[S.IDLE])
    assert [each.agent_id for each in ended] == [idle]


def test_whoever_could_use_the_room_is_told_of_with_the_end(rows: Rows) -> None:
    def gone() -> Wishes | None:
        agent = _ending(rows)
        (taken,) = rows.call(_take)
        wishes: Wishes | None = rows.call(
            endings.confirm_gone, agent_id=agent, token=taken.token, exit_cause=None, log_tail=()
        )
        return wishes

    assert gone() == Wishes()
    rows.request()
    assert gone() == Wishes(requests_wait=True)


def test_an_end_is_begun_once_however_many_begin_it(rows: Rows) -> None:
    for _ in range(20):
        agents = [rows.spawn(S.IDLE) for _ in range(3)]
        gate = threading.Barrier(4)

        def begin(order: list[str], gate: threading.Barrier = gate) -> int:
            gate.wait(20)
            return len(rows.call(_begin, *order))

        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(begin, [agents, agents[::-1], agents[1:], agents]))
        assert sum(done) == 3


def test_a_destroy_waits_out_the_lease_of_a_start(rows: Rows) -> None:
    agent = rows.spawn(S.SPAWNING)
    rows.set("spawns", agent, lease_token=5)
    rows.execute(
        "UPDATE spawns SET lease_holder = 'starter',"
        " lease_expires_at = clock_timestamp() + interval '60 s'"
    )
    rows.call(_begin, agent)
    row = rows.get("spawns", agent)
    assert row["due_at"] == row["lease_expires_at"]
    assert rows.call(_take) == []
    rows.shift("spawns", agent, lease_expires_at=-0.1)
    (taken,) = rows.call(_take)
    assert taken.token != 5


def test_reservations_are_withdrawn_and_nothing_else(rows: Rows) -> None:
    job = rows.request(state="assigned")
    reserved, spawning = rows.spawn(job=job), rows.spawn(S.SPAWNING)
    (ended,) = rows.call(endings.withdraw, [reserved, spawning, "unknown"])
    assert (ended.agent_id, ended.was, ended.job_id) == (reserved, S.RESERVED, job)
    assert rows.count("spawns") == 1


@pytest.mark.parametrize(
    ("columns", "starts"),
    [
        ({}, True),
        ({"state": "draining"}, False),
        ({"state": "unreachable"}, False),
    ],
)
def test_reservations_are_found_where_nothing_starts(
    rows: Rows, columns: dict[str, str], starts: bool
) -> None:
    rows.machine(**columns)
    agent = rows.spawn()
    rows.spawn(S.SPAWNING)
    rows.spawn(machine_id=None, backend_type="event")
    found = rows.call(endings.reserved_where_nothing_starts, stale_seconds=30)
    assert found == ([] if starts else [agent])


def test_a_reservation_on_a_silent_or_unknown_machine_starts_nowhere(rows: Rows) -> None:
    rows.machine()
    silent, unknown = rows.spawn(), rows.spawn(machine_id="m2")
    assert rows.call(endings.reserved_where_nothing_starts, stale_seconds=30) == [unknown]
    rows.shift("machines", MACHINE, last_heartbeat=-31.0)
    found = rows.call(endings.reserved_where_nothing_starts, stale_seconds=30)
    assert set(found) == {silent, unknown}
    assert rows.call(endings.reserved_where_nothing_starts, machine_id=MACHINE) == [silent]


def test_a_take_hands_out_all_a_backend_needs(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING, job=rows.request(state="assigned"), pool="p", targets=["t"])
    rows.set("spawns", agent, backend_ref='{"pid": "1"}')
    rows.call(_begin, agent)
    (taken,) = rows.call(_take)
    assert (taken.agent_id, taken.reason, taken.ref) == (agent, DestroyReason.IDLE, {"pid": "1"})
    assert (taken.pool, taken.targets, taken.label_set) == ("p", ("t",), ("linux",))
    assert (taken.machine_id, taken.run_id) == (MACHINE, "run")
    assert rows.get("spawns", agent)["attempts"] == 1


def test_a_destroy_is_taken_by_one_of_many(rows: Rows) -> None:
    for _ in range(40):
        rows.spawn(S.DESTROYING, due=-1)
    gate = threading.Barrier(8)

    def taker(number: int) -> list[str]:
        gate.wait(20)
        return [
            each.agent_id for _ in range(8) for each in rows.call(_take, holder=str(number), most=3)
        ]

    with ThreadPoolExecutor(8) as pool:
        taken = [agent for agents in pool.map(taker, range(8)) for agent in agents]
    assert len(taken) == len(set(taken)) == 40


def test_the_longest_due_is_destroyed_first(rows: Rows) -> None:
    later, sooner = rows.spawn(S.DESTROYING, due=10), rows.spawn(S.QUARANTINED, due=-10)
    taken = rows.call(_take, most=1)
    assert [each.agent_id for each in taken] == [sooner]
    assert [each.agent_id for each in rows.call(_take)] == [later]


def test_a_row_goes_with_its_agent_once_its_compute_is_gone_and_the_outcome_says_so(
    rows: Rows,
) -> None:
    rows.gateway()
    agent = _ending(rows)
    rows.agent(agent)
    (taken,) = rows.call(_take)
    cause = {"kind": "exited", "code": 137}
    assert rows.call(_gone, agent, taken.token, exit_cause=cause, log_tail=("a", "b"))
    assert rows.count("spawns") == rows.count("agents") == 0
    row = rows.get("outcomes", agent)
    assert (row["exit_cause"], row["log_tail"]) == (cause, ["a", "b"])
    assert row["gone_at"] is not None
    assert "gone" in row["timings"]


def test_what_was_kept_of_the_log_before_is_not_lost_at_the_end(rows: Rows) -> None:
    agent = _ending(rows)
    rows.execute("UPDATE outcomes SET log_tail = '{kept}', exit_cause = '{\"code\": 1}'")
    (taken,) = rows.call(_take)
    rows.call(_gone, agent, taken.token, log_tail=("later",))
    row = rows.get("outcomes", agent)
    assert (row["log_tail"], row["exit_cause"]) == (["kept"], {"code": 1})


def test_a_row_is_confirmed_gone_even_when_its_outcome_is_missing(rows: Rows) -> None:
    agent = rows.spawn(S.DESTROYING)
    (taken,) = rows.call(_take)
    assert rows.call(_gone, agent, taken.token)
    assert rows.count("spawns") == 0


def test_whoever_lost_the_lease_deletes_nothing(rows: Rows) -> None:
    agent = _ending(rows)
    (first,) = rows.call(_take)
    rows.shift("spawns", agent, lease_expires_at=-0.1)
    (second,) = rows.call(_take, holder="other")
    assert not rows.call(_gone, agent, first.token)
    assert rows.get("outcomes", agent)["gone_at"] is None
    assert rows.call(_gone, agent, second.token)
    assert not rows.call(_gone, agent, second.token)


def test_a_late_confirmation_counts_while_nobody_else_took_the_row(rows: Rows) -> None:
    agent = _ending(rows)
    (taken,) = rows.call(_take)
    rows.shift("spawns", agent, lease_expires_at=-60.0)
    assert rows.call(_gone, agent, taken.token)


def test_a_failed_destroy_is_tried_again_after_pauses_that_double_up_to_a_bound(
    rows: Rows,
) -> None:
    agent = _ending(rows)
    pauses = []
    for _ in range(6):
        (taken,) = rows.call(_take)
        state = rows.call(
            endings.postpone,
            agent_id=agent,
            token=taken.token,
            pause_seconds=2,
            most_seconds=20,
        )
        assert state is S.DESTROYING
        pauses.append(
            round(
                float(
                    rows.one("SELECT extract(epoch FROM retry_at - clock_timestamp()) FROM spawns")
                )
            )
        )
        assert rows.call(_take) == []
        rows.shift("spawns", agent, retry_at=-0.1)
    assert pauses == [2, 4, 8, 16, 20, 20]


def test_putting_off_under_a_lost_lease_changes_nothing(rows: Rows) -> None:
    agent = _ending(rows)
    (taken,) = rows.call(_take)
    before = rows.get("spawns", agent)
    answer = rows.call(
        endings.postpone, agent_id=agent, token=taken.token - 1, pause_seconds=2, most_seconds=20
    )
    assert answer is None
    assert rows.get("spawns", agent) == before


def test_only_what_is_past_its_bound_is_quarantined_and_it_still_counts(rows: Rows) -> None:
    late, in_time = rows.spawn(S.DESTROYING), rows.spawn(S.DESTROYING)
    rows.shift("spawns", late, deadline_at=-1.0)
    rows.shift("spawns", in_time, deadline_at=60.0)
    assert rows.call(endings.quarantine, [late, in_time]) == [late]
    row = rows.get("spawns", late)
    assert (row["state"], row["deadline_at"]) == ("quarantined", None)
    assert row["quarantined_at"] is not None
    assert rows.count("spawns") == 2


def test_what_is_quarantined_is_still_taken_and_confirmed(rows: Rows) -> None:
    agent = rows.spawn(S.QUARANTINED)
    (taken,) = rows.call(_take)
    assert rows.call(_gone, agent, taken.token)
