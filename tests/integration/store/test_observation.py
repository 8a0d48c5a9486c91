"""Who was watched and who was not: clocks move over what nobody saw."""

from __future__ import annotations

from typing import Any

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import inspections, observation
from kici_scaler.store.observation import Observation
from tests.support.rows import KIND, MACHINE, Rows

S = SpawnState


def _note(rows: Rows, *, watching: bool = True) -> Observation:
    found: Observation = rows.call(
        observation.note, watching=watching, longest_gap=30, grace_seconds=120
    )
    return found


def _last_watched(rows: Rows, ago: float, grace: float = -1.0) -> None:
    rows.execute(
        "UPDATE observation SET watched_at = clock_timestamp() - make_interval(secs => :ago),"
        " grace_until = clock_timestamp() + make_interval(secs => :grace)",
        ago=ago,
        grace=grace,
    )


def test_the_first_tick_ends_no_gap(rows: Rows) -> None:
    assert _note(rows).gap_seconds == 0


def test_ticks_without_a_gap_judge(rows: Rows) -> None:
    _note(rows)
    _last_watched(rows, 29)
    assert _note(rows) == Observation(watching=True, in_grace=False)


def test_a_gap_is_measured_and_followed_by_a_grace(rows: Rows) -> None:
    _note(rows)
    _last_watched(rows, 600)
    seen = _note(rows)
    assert (seen.watching, seen.in_grace) == (True, True)
    assert 600 <= seen.gap_seconds < 610
    again = _note(rows)
    assert (again.in_grace, again.gap_seconds) == (True, 0)
    _last_watched(rows, 1, grace=-0.1)
    assert not _note(rows).in_grace


def test_a_tick_that_could_not_watch_moves_nothing(rows: Rows) -> None:
    _note(rows)
    _last_watched(rows, 600)
    assert not _note(rows, watching=False).watching
    assert _note(rows).gap_seconds >= 600


@pytest.mark.parametrize("state", [S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY, S.DESTROYING])
def test_every_running_deadline_moves_by_the_unwatched_time(rows: Rows, state: SpawnState) -> None:
    agent = rows.spawn(state, job=rows.request(state="running"))
    rows.shift("spawns", agent, deadline_at=10.0)
    before = rows.get("spawns", agent)["deadline_at"]
    assert rows.call(observation.shift_clocks, 600) == 1
    assert (rows.get("spawns", agent)["deadline_at"] - before).total_seconds() == 600


def test_an_absence_moves_too_but_never_into_the_future(rows: Rows) -> None:
    long, short = (rows.agent(rows.busy()[0], gateway=None) for _ in range(2))
    rows.shift("agents", long, unseen_since=-1000.0)
    rows.shift("agents", short, unseen_since=-5.0)
    rows.call(observation.shift_clocks, 600)
    absent = "extract(epoch FROM clock_timestamp() - unseen_since)"
    listed = rows.all(f"SELECT agent_id, {absent} AS seconds FROM agents")
    found = {row.agent_id: float(row.seconds) for row in listed}
    assert 400 <= found[long] < 410
    assert 0 <= found[short] < 5


def test_attendance_counts_who_is_registered_and_who_is_absent(rows: Rows) -> None:
    rows.gateway()
    for gateway in ("gw-1", None, None):
        rows.agent(rows.busy()[0], gateway=gateway)
    rows.agent(rows.spawn(S.DESTROYING), gateway=None)
    rows.agent(rows.spawn(S.IDLE, scaler="b"))
    found = rows.call(observation.attendance, ["local", "b", "none"])
    assert {name: (each.registered, each.absent) for name, each in found.items()} == {
        "local": (3, 2),
        "b": (1, 0),
    }


def test_only_compute_that_should_be_there_and_is_not_seen_is_inspected(rows: Rows) -> None:
    rows.gateway()
    ref: dict[str, Any] = {"backend_ref": '{"pid": "1"}', "lease_token": 5}
    booting = rows.spawn(S.BOOTING, **ref)
    absent = rows.agent(rows.busy(**ref)[0], gateway=None)
    seen = rows.agent(rows.busy(**ref)[0])
    never_made = rows.spawn(S.BOOTING)
    ending = rows.spawn(S.DESTROYING, **ref)
    found = rows.call(inspections.missing, [booting, absent, seen, never_made, ending, "unknown"])
    assert {each.agent_id for each in found} == {booting, absent}
    assert {each.token for each in found} == {5}
    assert all(each.ref == {"pid": "1"} for each in found)


@pytest.mark.parametrize(
    ("state", "gateway", "is_missing"),
    [(S.BUSY, None, True), (S.BUSY, "gw-1", False), (S.IDLE, None, False)],
)
def test_an_agent_that_is_back_is_not_judged_by_its_exit(
    rows: Rows, state: SpawnState, gateway: str | None, is_missing: bool
) -> None:
    """Asked about as busy; one that moved on meanwhile is not the one that was inspected."""
    rows.gateway()
    agent = rows.agent(rows.spawn(state, job=rows.request(state="running")), gateway=gateway)
    assert rows.call(inspections.still_missing, agent, S.BUSY) is is_missing


def test_a_booting_agent_that_never_connected_is_missing(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING)
    assert rows.call(inspections.still_missing, agent, S.BOOTING)
    assert not rows.call(inspections.still_missing, "unknown", S.BOOTING)


def test_known_agents_are_those_with_a_row(rows: Rows) -> None:
    agent = rows.spawn(S.QUARANTINED)
    assert rows.call(inspections.known, [agent, "unknown"]) == {agent}


def test_unseen_agents_are_listed_for_their_own_place(rows: Rows) -> None:
    rows.gateway()
    here = rows.spawn(S.BOOTING, backend_ref="{}", lease_token=1)
    rows.spawn(S.BOOTING, machine_id="m2", backend_ref="{}", lease_token=2)
    rows.agent(rows.busy(backend_ref="{}", lease_token=3)[0])
    found = rows.call(inspections.unseen_here, backend_type=KIND, machine_id=MACHINE)
    assert found == [here]
