"""Agents that connect, leave and return, and the gateways that see them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import agents, gateways
from tests.support.rows import Rows

S = SpawnState


def _adopt(
    connection: Connection, agent: str, *, number: int, gateway: str = "gw-1", **more: Any
) -> bool:
    given: dict[str, Any] = {
        "spawn_id": agent,
        "labels": ("linux",),
        "gate": (),
        "facts": {"os": "linux"},
        **more,
    }
    return agents.adopt(
        connection, agent_id=agent, gateway=gateway, connection_number=number, **given
    )


def _disconnect(connection: Connection, *closed: tuple[str, int], gateway: str = "gw-1") -> Any:
    return agents.disconnect(connection, gateway=gateway, connections=closed, settle_seconds=2)


@pytest.fixture(autouse=True)
def _gateways(rows: Rows) -> None:
    for name in ("gw-1", "gw-2"):
        rows.gateway(name)


def _connected(rows: Rows, *, number: int = 1, gateway: str = "gw-1") -> str:
    agent, _ = rows.busy()
    return rows.agent(agent, number=number, gateway=gateway)


def test_a_registration_sees_what_it_needs_of_the_spawn(rows: Rows) -> None:
    job = rows.request(state="assigned")
    agent = rows.spawn(S.BOOTING, job=job, gate=["arm64"])
    found = rows.call(agents.lock_spawn, agent)
    assert (found.state, found.job_id, found.gate) == (S.BOOTING, job, ("arm64",))
    assert (found.label_set, found.agent_labels) == (("linux",), ("linux",))
    assert (found.warm, found.machine_id, found.scaler) == (False, "m1", "local")
    assert rows.call(agents.lock_spawn, "unknown") is None


def test_a_first_connection_is_recorded(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING)
    assert rows.call(_adopt, agent, number=1, gate=("arm64",))
    row = rows.get("agents", agent)
    assert (row["gateway"], row["connection_number"]) == ("gw-1", 1)
    assert (row["labels"], row["gate"], row["facts"]) == (["linux"], ["arm64"], {"os": "linux"})
    assert row["unseen_since"] is None


@pytest.mark.parametrize(("number", "is_newer"), [(4, False), (5, False), (6, True)])
def test_only_a_newer_connection_takes_over(rows: Rows, number: int, is_newer: bool) -> None:
    agent = _connected(rows, number=5)
    assert rows.call(_adopt, agent, number=number, gateway="gw-2") is is_newer
    row = rows.get("agents", agent)
    assert row["gateway"] == ("gw-2" if is_newer else "gw-1")
    assert row["connection_number"] == max(5, number)


def test_a_return_ends_the_absence_and_keeps_the_first_registration(rows: Rows) -> None:
    agent, _ = rows.busy()
    rows.agent(agent, gateway=None)
    registered = rows.get("agents", agent)["registered_at"]
    assert rows.call(_adopt, agent, number=2, gateway="gw-2", labels=("linux", "new"))
    row = rows.get("agents", agent)
    assert (row["unseen_since"], row["registered_at"]) == (None, registered)
    assert row["labels"] == ["linux", "new"]


def _register(connection: Connection, agent: str, number: int) -> bool:
    """As a registration does: the spawn's lock first."""
    agents.lock_spawn(connection, agent)
    return _adopt(connection, agent, number=number)


def test_of_many_connections_at_once_the_newest_wins(rows: Rows) -> None:
    for _ in range(10):
        agent = rows.spawn(S.BOOTING)
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda number, agent=agent: rows.call(_register, agent, number),
                    [3, 7, 1, 8, 2, 6, 4, 5],
                )
            )
        assert rows.get("agents", agent)["connection_number"] == 8


@pytest.mark.parametrize("state", [S.SPAWNING, S.BOOTING, S.IDLE])
def test_an_agent_with_a_job_must_accept_it_in_time(rows: Rows, state: SpawnState) -> None:
    agent = rows.spawn(state, job=rows.request(state="assigned"))
    found = rows.call(agents.connect_spawn, agent_id=agent, adopter="gw-1", offer_seconds=30)
    assert found is S.IDLE
    row = rows.get("spawns", agent)
    assert row["adopter"] == "gw-1"
    soon = "BETWEEN clock_timestamp() + interval '25 s' AND clock_timestamp() + interval '30 s'"
    assert rows.count("spawns", f"deadline_at {soon} AND due_at {soon}") == 1


def test_an_agent_that_comes_and_goes_gets_no_more_time_for_its_offer(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING, job=rows.request(state="assigned"))
    rows.call(agents.connect_spawn, agent_id=agent, adopter="gw-1", offer_seconds=30)
    deadline = rows.get("spawns", agent)["deadline_at"]
    for gateway in ("gw-2", "gw-1"):
        rows.shift("spawns", agent, due_at=2.0)
        rows.call(agents.connect_spawn, agent_id=agent, adopter=gateway, offer_seconds=30)
        row = rows.get("spawns", agent)
        assert row["deadline_at"] == row["due_at"] == deadline


def test_a_warm_agent_waits_for_nothing(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING)
    rows.call(agents.connect_spawn, agent_id=agent, adopter="gw-1", offer_seconds=30)
    row = rows.get("spawns", agent)
    assert (row["state"], row["deadline_at"], row["due_at"]) == ("idle", None, None)


def test_a_busy_agent_that_returns_keeps_its_lifetime(rows: Rows) -> None:
    agent, _ = rows.busy(due=-1)
    rows.shift("spawns", agent, deadline_at=1000.0)
    before = rows.get("spawns", agent)
    found = rows.call(agents.connect_spawn, agent_id=agent, adopter="gw-2", offer_seconds=30)
    row = rows.get("spawns", agent)
    assert (found, row["adopter"]) == (S.BUSY, "gw-2")
    assert row["deadline_at"] == row["due_at"] == before["deadline_at"]


def test_a_closed_connection_starts_the_absence_and_a_look_after_the_settle(rows: Rows) -> None:
    agent = _connected(rows)
    assert rows.call(_disconnect, (agent, 1)) == {agent}
    assert rows.get("agents", agent)["unseen_since"] is not None
    soon = "due_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '2 s'"
    assert rows.count("spawns", soon) == 1


def test_a_closed_connection_that_is_old_changes_nothing(rows: Rows) -> None:
    agent = _connected(rows, number=2)
    assert rows.call(_disconnect, (agent, 1)) == frozenset()
    assert rows.call(_disconnect, (agent, 2), gateway="gw-2") == frozenset()
    assert rows.get("agents", agent)["unseen_since"] is None


def test_an_absence_is_not_started_twice(rows: Rows) -> None:
    agent = _connected(rows)
    rows.call(_disconnect, (agent, 1))
    since = rows.get("agents", agent)["unseen_since"]
    assert rows.call(_disconnect, (agent, 1)) == frozenset()
    assert rows.get("agents", agent)["unseen_since"] == since


def test_many_connections_close_at_once_each_by_its_own_number(rows: Rows) -> None:
    closed, newer = _connected(rows), _connected(rows, number=9)
    assert rows.call(_disconnect, (closed, 1), (newer, 1), ("unknown", 1)) == {closed}


@pytest.mark.parametrize("state", [S.DESTROYING, S.QUARANTINED])
def test_a_closed_connection_does_not_hurry_a_destroy(rows: Rows, state: SpawnState) -> None:
    agent = rows.agent(rows.spawn(state, due=500))
    before = rows.get("spawns", agent)["due_at"]
    assert rows.call(_disconnect, (agent, 1)) == {agent}
    assert rows.get("spawns", agent)["due_at"] == before


def test_errands_are_what_connected_agents_are_owed(rows: Rows) -> None:
    offered_job = rows.request(state="assigned")
    offered = rows.agent(rows.spawn(S.IDLE, job=offered_job))
    called_off_job = rows.request(state="running", cancel_reason="enough")
    called_off = rows.agent(rows.spawn(S.BUSY, job=called_off_job))
    ending = rows.agent(rows.spawn(S.DESTROYING))
    rows.agent(rows.spawn(S.IDLE))
    _connected(rows)
    rows.agent(rows.spawn(S.IDLE, job=rows.request(state="assigned")), gateway="gw-2")
    rows.agent(rows.spawn(S.DESTROYING), gateway=None)
    found = {each.agent_id: each for each in rows.call(agents.errands, "gw-1")}
    assert set(found) == {offered, called_off, ending}
    assert (found[offered].job_id, found[offered].state) == (offered_job, S.IDLE)
    assert found[called_off].cancel_reason == "enough"
    assert found[ending].destroy_reason == "shutdown"
    some = rows.call(agents.errands, "gw-1", agent_ids=[ending, "unknown"])
    assert [each.agent_id for each in some] == [ending]
    assert rows.call(agents.errands, "gw-1", agent_ids=[]) == []


def test_the_gateway_of_an_agent_is_where_it_is_seen_now(rows: Rows) -> None:
    seen = _connected(rows, gateway="gw-2")
    unseen = rows.agent(rows.busy()[0], gateway=None)
    assert rows.call(agents.gateway_of, seen) == "gw-2"
    assert rows.call(agents.gateway_of, unseen) is None
    assert rows.call(agents.gateway_of, "unknown") is None


def test_a_new_incarnation_claims_its_open_connections_in_bulk(rows: Rows) -> None:
    mine, moved = _connected(rows), _connected(rows, number=5)
    rows.call(_disconnect, (mine, 1))
    rows.shift("spawns", mine, deadline_at=1000.0)
    assert rows.call(agents.reassert, "gw-2", [(mine, 1), (moved, 4), ("unknown", 1)]) == {mine}
    row, spawn = rows.get("agents", mine), rows.get("spawns", mine)
    assert (row["gateway"], row["unseen_since"]) == ("gw-2", None)
    assert (spawn["adopter"], spawn["due_at"]) == ("gw-2", spawn["deadline_at"])
    assert rows.get("agents", moved)["gateway"] == "gw-1"


def test_a_warm_agent_that_is_reasserted_waits_for_nothing(rows: Rows) -> None:
    agent = rows.agent(rows.spawn(S.IDLE, due=1))
    rows.call(agents.reassert, "gw-2", [(agent, 1)])
    assert rows.get("spawns", agent)["due_at"] is None


def test_a_gateway_is_fresh_until_it_is_declared_dead_and_never_again(rows: Rows) -> None:
    rows.shift("gateways", "gw-1", last_heartbeat=-20.0)
    assert rows.call(gateways.declare_dead, stale_seconds=15) == ["gw-1"]
    assert rows.call(gateways.declare_dead, stale_seconds=15) == []
    assert not rows.call(gateways.heartbeat, "gw-1")
    assert not rows.call(gateways.is_alive, "gw-1")
    assert rows.call(gateways.heartbeat, "gw-2")
    assert rows.call(gateways.is_alive, "gw-2")
    assert not rows.call(gateways.is_alive, "unknown")


def test_a_gateway_is_not_declared_dead_while_it_adopts(rows: Rows) -> None:
    rows.shift("gateways", "gw-1", last_heartbeat=-20.0)
    with ThreadPoolExecutor(1) as pool:
        with rows.begin() as connection:
            assert gateways.is_alive(connection, "gw-1")
            declared = pool.submit(rows.call, gateways.declare_dead, stale_seconds=15)
            rows.wait_until_blocked()
            gateways.heartbeat(connection, "gw-1")
        assert declared.result(20) == []


def test_agents_of_a_dead_gateway_are_unseen_since_it_was_last_heard(rows: Rows) -> None:
    lost, kept = _connected(rows), _connected(rows, gateway="gw-2")
    static = rows.agent("static", spawn_id=None)
    rows.shift("gateways", "gw-1", last_heartbeat=-20.0, dead_at=0.0)
    assert rows.call(gateways.forsake) == 1
    heard = rows.get("gateways", "gw-1")["last_heartbeat"]
    assert rows.get("agents", lost)["unseen_since"] == heard
    assert rows.get("agents", static)["unseen_since"] == heard
    assert rows.get("agents", kept)["unseen_since"] is None
    assert rows.count("spawns", "due_at <= clock_timestamp()") == 1
    assert rows.call(gateways.forsake) == 0


def test_an_agent_whose_row_is_worked_on_is_forsaken_at_the_next_tick(rows: Rows) -> None:
    agent = _connected(rows)
    rows.shift("gateways", "gw-1", dead_at=0.0)
    with rows.begin() as connection:
        agents.lock_spawn(connection, agent)
        assert rows.call(gateways.forsake) == 0
    assert rows.call(gateways.forsake) == 1


def test_an_orderly_end_frees_agents_at_once(rows: Rows) -> None:
    agent = _connected(rows)
    rows.call(gateways.close_incarnation, "gw-1")
    assert not rows.call(gateways.is_alive, "gw-1")
    assert rows.get("agents", agent)["unseen_since"] is not None


def test_whether_any_gateway_could_have_seen_agents(rows: Rows) -> None:
    assert rows.call(gateways.any_fresh, fresh_seconds=15)
    rows.shift("gateways", "gw-1", dead_at=0.0)
    rows.shift("gateways", "gw-2", last_heartbeat=-16.0)
    assert not rows.call(gateways.any_fresh, fresh_seconds=15)


def test_long_dead_gateways_that_no_agent_names_are_forgotten(rows: Rows) -> None:
    _connected(rows)
    for name in ("gw-1", "gw-2"):
        rows.shift("gateways", name, dead_at=-100.0)
    assert rows.call(gateways.purge, older_seconds=50) == 1
    assert rows.count("gateways", "incarnation = 'gw-1'") == 1
