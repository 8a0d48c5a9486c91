"""A tick with nothing to do is one statement; whatever there is to do makes it a whole sweep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import event

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import sweep
from kici_scaler.service.ports import NoHints, Place, Step
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.sweep import Swept
from kici_scaler.store import failovers, ticks
from kici_scaler.store.single import one_statement
from kici_scaler.store.ticks import Tick
from tests.support.rows import KIND, MACHINE, Rows

S = SpawnState
NOTHING = Tick(is_over=True, is_time=True, to_do=frozenset())


class _Hints(NoHints):
    """Keeps what was hinted."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.admits = 0

    def step(self, step: Step, places: Iterable[Place]) -> None:
        self.steps.append(step)

    def admit(self, *, soon: bool = False) -> None:
        self.admits += 1


@pytest.fixture
def hints() -> _Hints:
    return _Hints()


@pytest.fixture
def its(runtime: Runtime, rows: Rows, hints: _Hints) -> Runtime:
    """A runtime in a house that has been watched for a while, where nothing is to do."""
    rows.machine()
    rows.gateway()
    agent, _ = rows.busy()
    rows.agent(agent)
    watched = Runtime(engine=runtime.engine, owner="sweep", hints=hints)
    sweep.sweep(watched)
    _age(rows)
    return watched


def _age(rows: Rows, seconds: float = 1.0) -> None:
    """The last tick was so long ago."""
    rows.execute(
        "UPDATE duties SET ticked_at = clock_timestamp() - make_interval(secs => :ago)"
        " WHERE duty = 'sweep'",
        ago=seconds,
    )


def _look(its: Runtime) -> Tick:
    """The statement alone, as if whoever sent it had died right after it."""
    with one_statement(its.engine) as connection:
        return ticks.begin(connection, sweep.DUTY, interval_seconds=1.0, longest_gap=60.0)


def _ticked(rows: Rows) -> datetime:
    return rows.one("SELECT ticked_at FROM duties WHERE duty = 'sweep'")  # type: ignore[no-any-return]  # a timestamp


def _watched(rows: Rows) -> datetime:
    return rows.one("SELECT watched_at FROM observation")  # type: ignore[no-any-return]  # a timestamp


Acted = Callable[[], Any]


@dataclass(frozen=True)
class Need:
    """Something to do: `make` makes it, and returns what is true once a sweep has done it."""

    part: str
    make: Callable[[Rows, _Hints], Acted]


def _another_server(rows: Rows, _: _Hints) -> Acted:
    rows.execute("UPDATE server_identity SET identity = 'another'")
    return lambda: rows.count("server_identity", "held_since IS NOT NULL")


def _a_server_not_noted(rows: Rows, _: _Hints) -> Acted:
    rows.execute("DELETE FROM server_identity")
    return lambda: rows.count("server_identity")


def _held_back(rows: Rows, _: _Hints) -> Acted:
    rows.execute("UPDATE server_identity SET held_since = clock_timestamp()")
    rows.revision(active=True, document={"version": 1, "scalers": []})
    rows.call(failovers.note_stock, backend_type=KIND, machine_id=MACHINE, strangers=0)
    return lambda: rows.count("server_identity", "held_since IS NULL")


def _silent_gateway(rows: Rows, _: _Hints) -> Acted:
    rows.gateway("gw-2")
    rows.shift("gateways", "gw-2", last_heartbeat=-16.0)
    return lambda: rows.get("gateways", "gw-2")["dead_at"]


def _forsaken_agent(rows: Rows, _: _Hints) -> Acted:
    agent, _job = rows.busy()
    return _forsaken(rows, agent, agent)


def _forsaken_static_agent(rows: Rows, _: _Hints) -> Acted:
    return _forsaken(rows, "static", None)


def _forsaken(rows: Rows, agent: str, spawn: str | None) -> Acted:
    rows.gateway("gw-0")
    rows.agent(agent, gateway="gw-0", spawn_id=spawn)
    rows.shift("gateways", "gw-0", dead_at=-1.0)
    return lambda: rows.get("agents", agent)["unseen_since"]


def _silent_machine(rows: Rows, _: _Hints) -> Acted:
    rows.shift("machines", MACHINE, last_heartbeat=-31.0)
    return lambda: rows.get("machines", MACHINE)["state"] == "unreachable"


def _nobody_watching(rows: Rows, _: _Hints) -> Acted:
    rows.execute("DELETE FROM agents")
    rows.shift("gateways", "gw-1", dead_at=-1.0)
    before = _watched(rows)
    return lambda: _watched(rows) == before


def _an_unwatched_time(rows: Rows, _: _Hints) -> Acted:
    agent = rows.spawn(S.BOOTING)
    rows.shift("spawns", agent, deadline_at=60.0)
    rows.execute("UPDATE observation SET watched_at = watched_at - interval '600 s'")
    return lambda: rows.count("spawns", "deadline_at > clock_timestamp() + interval '600 s'")


def _a_first_watched_tick(rows: Rows, _: _Hints) -> Acted:
    rows.execute("DELETE FROM observation")
    return lambda: rows.count("observation")


def _due_spawn(rows: Rows, hints: _Hints) -> Acted:
    rows.spawn(S.DESTROYING, due=-1)
    return lambda: hints.steps == [Step.DESTROY]


def _due_delivery(rows: Rows, hints: _Hints) -> Acted:
    rows.execute(
        "INSERT INTO event_deliveries (agent_id, scaler, kind, target, due_at)"
        " VALUES ('agent', 'local', 'scale-up', 'target', clock_timestamp())"
    )
    return lambda: hints.steps == [Step.START]


def _waiting_request(rows: Rows, hints: _Hints) -> Acted:
    rows.request()
    return lambda: hints.admits == 1


def _due_static_job(rows: Rows, _: _Hints) -> Acted:
    rows.agent("static", spawn_id=None)
    past = {"static_due_at": "-infinity", "static_deadline_at": "-infinity"}
    job = rows.request(state="assigned", static_agent="static", **past)
    return lambda: rows.get("scale_requests", job)["state"] == "waiting"


NEEDS = {
    "the server is another": Need("another_server", _another_server),
    "the server is not noted yet": Need("another_server", _a_server_not_noted),
    "things are held back": Need("another_server", _held_back),
    "a gateway fell silent": Need("silent_gateways", _silent_gateway),
    "an agent of a dead gateway": Need("forsaken_agents", _forsaken_agent),
    "a static agent of a dead gateway": Need("forsaken_agents", _forsaken_static_agent),
    "a machine fell silent": Need("silent_machines", _silent_machine),
    "no gateway lives": Need("nobody_watching", _nobody_watching),
    "nobody watched for a while": Need("unwatched_time", _an_unwatched_time),
    "nobody ever watched": Need("unwatched_time", _a_first_watched_tick),
    "a spawn is due": Need("due_spawns", _due_spawn),
    "a delivery is due": Need("due_deliveries", _due_delivery),
    "a request waits": Need("waiting_requests", _waiting_request),
    "the job of a static agent is due": Need("due_static_jobs", _due_static_job),
}


def test_each_part_has_something_that_needs_it() -> None:
    assert {need.part for need in NEEDS.values()} == set(ticks.PARTS)


@pytest.mark.parametrize("what", NEEDS)
def test_what_is_to_do_is_said_and_done_even_if_whoever_looked_died(
    its: Runtime, rows: Rows, hints: _Hints, what: str
) -> None:
    need = NEEDS[what]
    done = need.make(rows, hints)
    ticked, watched = _ticked(rows), _watched_or_never(rows)
    assert _look(its) == Tick(is_over=False, is_time=True, to_do=frozenset({need.part}))
    assert (_ticked(rows), _watched_or_never(rows)) == (ticked, watched), "nothing was written"
    assert sweep.sweep(its).owned_tick
    assert done()
    assert _ticked(rows) > ticked


def _watched_or_never(rows: Rows) -> datetime | None:
    return _watched(rows) if rows.count("observation") else None


def test_a_tick_with_nothing_to_do_is_one_statement_that_notes_that_somebody_watched(
    its: Runtime, rows: Rows, hints: _Hints
) -> None:
    ticked, watched = _ticked(rows), _watched(rows)
    sent: list[str] = []

    def hear(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    event.listen(its.engine, "after_cursor_execute", hear)
    try:
        assert sweep.sweep(its) == Swept()
    finally:
        event.remove(its.engine, "after_cursor_execute", hear)
    assert len(sent) == 1
    assert _ticked(rows) > ticked
    assert _watched(rows) > watched
    assert (hints.steps, hints.admits) == ([], 0)


def test_what_became_due_after_a_look_is_found_by_the_next(its: Runtime, rows: Rows) -> None:
    assert _look(its) == NOTHING
    rows.spawn(S.DESTROYING, due=-1)
    _age(rows)
    assert sweep.sweep(its).looked_at == 1


def test_a_tick_that_is_not_due_claims_nothing_and_notes_nothing(its: Runtime, rows: Rows) -> None:
    _age(rows, -3_600.0)
    before = _ticked(rows), _watched(rows)
    assert _look(its) == Tick(is_over=False, is_time=False, to_do=frozenset())
    rows.spawn(S.DESTROYING, due=-1)
    assert _look(its) == Tick(is_over=False, is_time=False, to_do=frozenset({"due_spawns"}))
    assert sweep.sweep(its) == Swept(owned_tick=False)
    assert (_ticked(rows), _watched(rows)) == before


def test_the_first_tick_of_all_is_a_whole_sweep(its: Runtime, rows: Rows) -> None:
    rows.execute("DELETE FROM duties")
    assert _look(its) == Tick(is_over=False, is_time=True, to_do=frozenset())
    assert sweep.sweep(its) == Swept()
    assert rows.count("duties", "duty = 'sweep'") == 1


@pytest.mark.parametrize(
    ("window", "part"),
    [("gateway_stale_seconds", "nobody_watching"), ("machine_stale_seconds", "silent_machines")],
)
def test_windows_are_the_live_ones(its: Runtime, rows: Rows, window: str, part: str) -> None:
    rows.shift("gateways", "gw-1", last_heartbeat=-5.0)
    rows.shift("machines", MACHINE, last_heartbeat=-5.0)
    assert _look(its) == NOTHING
    rows.execute(
        "INSERT INTO settings (scope, key, value, changed_by) VALUES ('', :key, '4', 'test')",
        key=window,
    )
    assert part in _look(its).to_do


def test_of_many_clocks_one_owns_a_tick_with_nothing_to_do(
    its: Runtime, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that no second tick begins meanwhile, however slow the machine is.
    monkeypatch.setattr(sweep, "INTERVAL_SECONDS", 100.0)
    for _ in range(10):
        _age(rows, 100.0)
        gate = threading.Barrier(8)

        def tick(_: int, gate: threading.Barrier = gate) -> Swept:
            gate.wait(20)
            return sweep.sweep(its)

        with ThreadPoolExecutor(8) as pool:
            swept = list(pool.map(tick, range(8)))
        assert [each.owned_tick for each in swept].count(True) == 1


def test_a_tick_waits_for_the_one_that_is_being_done(its: Runtime, rows: Rows) -> None:
    """It is no second one, though it looked before the first was committed."""
    with ThreadPoolExecutor(1) as pool:
        with rows.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE duties SET ticked_at = clock_timestamp() + interval '1 hour'"
            )
            second = pool.submit(sweep.sweep, its)
            rows.wait_until_blocked()
        assert second.result(20) == Swept(owned_tick=False)
