"""Every statement that moves a spawn, tried from every state: it moves along the table or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import NoResultFound

from kici_scaler.domain.request import RequestState
from kici_scaler.domain.spawn import EDGES, DestroyReason, SpawnState, may
from kici_scaler.store import (
    agents,
    arrivals,
    due,
    endings,
    gateways,
    observation,
    request_ends,
    start_takes,
    starts,
)
from kici_scaler.store.events import EventType, NewEvent
from kici_scaler.store.starts import MadeStart
from tests.support.rows import KIND, MACHINE, Rows

S = SpawnState
TOKEN = 7
GONE = "gone"


@dataclass(frozen=True)
class Move:
    """A statement, and where it leads from where; elsewhere it must change nothing."""

    call: Callable[[Connection, str, str], Any]
    leads: dict[SpawnState, SpawnState | None]
    holds_lease: bool = True
    lease_seconds: float = 60.0
    columns: tuple[tuple[str, Any], ...] = ()
    refuses: type[Exception] | None = None


def _take_start(connection: Connection, agent: str, job: str) -> Any:
    return start_takes.take(
        connection, kind=KIND, machine_id=MACHINE, holder="new", most=9, lease_seconds=30
    ).rows


def _record_created(connection: Connection, agent: str, job: str) -> Any:
    made = MadeStart(agent, TOKEN, {"pid": "1"}, boot_floor=300, look_after=2)
    return starts.record_created(connection, [made]).get(TOKEN)


def _connect(connection: Connection, agent: str, job: str) -> Any:
    return agents.connect_spawn(connection, agent_id=agent, adopter="gw-1", offer_seconds=30)


def _connect_first(connection: Connection, agent: str, job: str) -> Any:
    event = NewEvent(EventType.CONNECTING, agent, job, None)
    return arrivals.connect_first(
        connection, agent_id=agent, adopter="gw-1", offer_seconds=30, event=event
    )


def _start_running(connection: Connection, agent: str, job: str) -> Any:
    return request_ends.start_running(connection, job_id=job, agent_id=agent)


def _begin(connection: Connection, agent: str, job: str) -> Any:
    return endings.begin(
        connection,
        [agent],
        states=[S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY],
        reason=DestroyReason.SHUTDOWN,
        why="a test",
        quarantine_seconds=900,
    )


def _confirm_gone(connection: Connection, agent: str, job: str) -> Any:
    return endings.confirm_gone(
        connection, agent_id=agent, token=TOKEN, exit_cause=None, log_tail=()
    )


def _sweep_ones(connection: Connection, agent: str, job: str) -> Any:
    return due.pick(connection, most=9, first_pause=5, machine_stale_seconds=30)


MOVES = {
    "take to start": Move(_take_start, {S.RESERVED: S.SPAWNING}, holds_lease=False),
    "take to start what another let go": Move(
        _take_start, {S.RESERVED: S.SPAWNING}, lease_seconds=-5
    ),
    "record what was created": Move(_record_created, {S.SPAWNING: S.BOOTING}),
    "undo a start": Move(
        lambda connection, agent, job: starts.undo(connection, agent_id=agent, token=TOKEN),
        {S.SPAWNING: None},
        columns=(("attempts", 1),),
    ),
    "give a start back": Move(
        lambda connection, agent, job: starts.release(connection, agent_id=agent, token=TOKEN), {}
    ),
    "keep leases alive": Move(
        lambda connection, agent, job: starts.extend(
            connection, holder="me", tokens=[TOKEN], lease_seconds=30
        ),
        {},
    ),
    "connect": Move(_connect, {S.SPAWNING: S.IDLE, S.BOOTING: S.IDLE}, refuses=NoResultFound),
    "connect for the first time": Move(
        _connect_first, {S.SPAWNING: S.IDLE, S.BOOTING: S.IDLE}, refuses=NoResultFound
    ),
    "accept": Move(_start_running, {S.IDLE: S.BUSY}),
    "withdraw": Move(
        lambda connection, agent, job: endings.withdraw(connection, [agent]), {S.RESERVED: None}
    ),
    "begin to destroy": Move(
        _begin, dict.fromkeys((S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY), S.DESTROYING)
    ),
    "confirm gone": Move(_confirm_gone, {S.DESTROYING: None, S.QUARANTINED: None}),
    "quarantine": Move(
        lambda connection, agent, job: endings.quarantine(connection, [agent]),
        {S.DESTROYING: S.QUARANTINED},
    ),
    "put a destroy off": Move(
        lambda connection, agent, job: endings.postpone(
            connection, agent_id=agent, token=TOKEN, pause_seconds=1, most_seconds=9
        ),
        {},
    ),
    "take to destroy": Move(
        lambda connection, agent, job: endings.take(
            connection, kind=KIND, machine_id=MACHINE, holder="new", most=9, lease_seconds=30
        ),
        {},
        holds_lease=False,
    ),
    "pick what is due": Move(_sweep_ones, {}),
    "disconnect": Move(
        lambda connection, agent, job: agents.disconnect(
            connection, gateway="gw-1", connections=[(agent, 1)], settle_seconds=2
        ),
        {},
    ),
    "reassert": Move(
        lambda connection, agent, job: agents.reassert(connection, "gw-1", [(agent, 1)]), {}
    ),
    "forsake": Move(lambda connection, agent, job: gateways.forsake(connection), {}),
    "move clocks": Move(
        lambda connection, agent, job: observation.shift_clocks(connection, 60), {}
    ),
    "finish the job": Move(
        lambda connection, agent, job: request_ends.finish(
            connection, job_id=job, state=RequestState.SUCCEEDED, result={}
        ),
        {},
    ),
}


def _prepare(rows: Rows, state: SpawnState, move: Move) -> tuple[str, str]:
    rows.gateway()
    job = rows.request(state="running" if state is S.BUSY else "assigned")
    agent = rows.spawn(state, job=job, due=-1)
    rows.shift("spawns", agent, deadline_at=-1.0)
    if move.leads.get(S.RESERVED) is S.SPAWNING and state is not S.RESERVED:
        rows.shift("spawns", agent, deadline_at=60.0)
    if state is S.RESERVED:
        rows.set("spawns", agent, deadline_at=None)
    if state in (S.IDLE, S.BUSY):
        rows.agent(agent)
    if move.holds_lease and state is not S.RESERVED:
        rows.set("spawns", agent, lease_token=TOKEN)
        rows.execute(
            "UPDATE spawns SET lease_holder = 'me', lease_expires_at ="
            " clock_timestamp() + make_interval(secs => :left)",
            left=move.lease_seconds,
        )
    for column, value in move.columns:
        rows.set("spawns", agent, **{column: value})
    rows.execute(
        "INSERT INTO outcomes (agent_id, scaler, backend_type) VALUES (:agent, 'local', :kind)",
        agent=agent,
        kind=KIND,
    )
    return agent, job


def _state(rows: Rows, agent: str) -> SpawnState | None:
    found = rows.all("SELECT state FROM spawns WHERE agent_id = :agent", agent=agent)
    return SpawnState(found[0][0]) if found else None


CASES = [pytest.param(name, state, id=f"{name}, {state}") for name in MOVES for state in SpawnState]


@pytest.mark.parametrize(("name", "state"), CASES)
def test_a_statement_moves_a_spawn_only_along_its_edges(
    rows: Rows, name: str, state: SpawnState
) -> None:
    move = MOVES[name]
    agent, job = _prepare(rows, state, move)
    if move.refuses is not None and state not in (S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY):
        with pytest.raises(move.refuses):
            rows.call(move.call, agent, job)
    else:
        rows.call(move.call, agent, job)
    found = _state(rows, agent)
    assert found is move.leads.get(state, state)
    assert found is state or may(state, found)


def test_every_edge_of_the_table_is_taken_by_some_statement() -> None:
    taken = {(source, target) for move in MOVES.values() for source, target in move.leads.items()}
    assert taken == {(edge.source, edge.target) for edge in EDGES}


ENTERED = {
    S.SPAWNING: "spawning_at",
    S.BOOTING: "booting_at",
    S.IDLE: "idle_at",
    S.BUSY: "busy_at",
    S.DESTROYING: "destroying_at",
    S.QUARANTINED: "quarantined_at",
}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        pytest.param(name, source, id=f"{name} from {source}")
        for name, move in MOVES.items()
        for source, target in move.leads.items()
        if target is not None
    ],
)
def test_the_time_of_a_state_stands_on_the_row_and_something_is_due(
    rows: Rows, name: str, source: SpawnState
) -> None:
    move = MOVES[name]
    target = move.leads[source]
    assert target is not None
    agent, job = _prepare(rows, source, move)
    rows.execute(f"UPDATE spawns SET {ENTERED[target]} = NULL")
    rows.call(move.call, agent, job)
    row = rows.get("spawns", agent)
    assert row[ENTERED[target]] is not None
    assert row["due_at"] is not None
    assert row["due_count"] == 0


STRANGERS = {
    "record what was created": None,
    "undo a start": False,
    "give a start back": None,
    "confirm gone": None,
    "put a destroy off": None,
}


@pytest.mark.parametrize("state", [S.SPAWNING, S.DESTROYING, S.QUARANTINED])
@pytest.mark.parametrize("name", STRANGERS)
def test_whoever_lost_the_lease_changes_nothing(rows: Rows, name: str, state: SpawnState) -> None:
    """Another took the row meanwhile, under a higher token."""
    move = MOVES[name]
    agent, job = _prepare(rows, state, move)
    rows.set("spawns", agent, lease_token=TOKEN + 1)
    before = rows.get("spawns", agent)
    assert rows.call(move.call, agent, job) == STRANGERS[name]
    assert rows.get("spawns", agent) == before
