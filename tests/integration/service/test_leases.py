"""Applies whose answer was lost, and holders who come back after their lease."""

from __future__ import annotations

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import request, start
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.start import StartOrder
from kici_scaler.store import events
from tests.integration.service import work
from tests.support.rows import KIND, MACHINE, Rows

S = SpawnState

pytestmark = pytest.mark.usefixtures("one_place")


def _take(runtime: Runtime) -> StartOrder:
    (order,), _ = start.take(runtime, backend_type=KIND, machine_id=MACHINE, most=9)
    return order


@pytest.fixture
def order(runtime: Runtime) -> StartOrder:
    """A job's spawn, taken to be started."""
    request.submit(runtime, [parse_request(work.body("job", "roomy"))])
    return _take(runtime)


@pytest.mark.parametrize("state", [S.BOOTING, S.IDLE, S.BUSY, S.DESTROYING])
def test_a_creation_recorded_under_this_token_is_never_undone(
    runtime: Runtime, rows: Rows, order: StartOrder, state: SpawnState
) -> None:
    agent = order.row.agent_id
    told = [start.Told(events.EventType.CONNECTING, "made")]
    assert start.record_created(runtime, order, {"pid": "1"}, told) is S.BOOTING
    columns = {"state": state.value, "busy_at": rows.one("SELECT now()")}
    if state is S.DESTROYING:
        columns |= {"destroy_reason": "shutdown", "destroying_at": columns["busy_at"]}
    rows.set("spawns", agent, **columns)
    assert start.record_created(runtime, order, {"pid": "1"}, told) is state
    assert len(rows.call(events.after, 0, job_id="job")) == 1


def test_a_creation_is_still_undone_once_another_has_made_it_or_it_is_gone(
    runtime: Runtime, rows: Rows, order: StartOrder
) -> None:
    rows.shift("spawns", order.row.agent_id, lease_expires_at=-0.1)
    again = _take(runtime)
    assert start.record_created(runtime, again, {"pid": "2"}, ()) is S.BOOTING
    assert start.record_created(runtime, order, {"pid": "1"}, ()) is None
    rows.execute("DELETE FROM spawns")
    assert start.record_created(runtime, again, {"pid": "2"}, ()) is None


def test_room_given_back_after_the_lease_ends_nobody_elses_start(
    runtime: Runtime, rows: Rows, order: StartOrder
) -> None:
    rows.shift("spawns", order.row.agent_id, lease_expires_at=-0.1)
    again = _take(runtime)
    assert not start.give_back(runtime, order, why="no room", foreign_use={})
    assert start.still_wanted(runtime, again)
    assert rows.get("scale_requests", "job")["state"] == "assigned"
