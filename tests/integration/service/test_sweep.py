"""The sweep on real rows: what is over ends once, doubt leaves alone, and one bad row is one."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from kici_scaler.domain.request import RequestState
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import finish, request, sweep
from kici_scaler.service.ports import NoHints, Place, Step
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.sweep import Swept
from kici_scaler.store import outcomes, scaler_states
from kici_scaler.store.warm import Bound
from tests.support.rows import KIND, MACHINE, Rows

S = SpawnState
HERE = Place(KIND, MACHINE)


class _Hints(NoHints):
    """Keeps what was hinted."""

    def __init__(self) -> None:
        self.steps: list[tuple[Step, Place]] = []
        self.inspected: list[str] = []
        self.woken: list[tuple[str, str]] = []
        self.admits = 0

    def step(self, step: Step, places: Iterable[Place]) -> None:
        self.steps += [(step, place) for place in places]

    def inspect(self, place: Place, agent_ids: Sequence[str]) -> None:
        self.inspected += agent_ids

    def admit(self, *, soon: bool = False) -> None:
        self.admits += 1

    def wake_gateways(self, gateways: Iterable[tuple[str, str]]) -> None:
        self.woken += gateways

    def offer(self, offers: Iterable[Bound]) -> None:
        self.woken += [(each.gateway, each.agent_id) for each in offers]


@pytest.fixture
def hints() -> _Hints:
    return _Hints()


@pytest.fixture
def its(runtime: Runtime, rows: Rows, hints: _Hints) -> Runtime:
    """A runtime in a house that has been watched for a while: a machine, a gateway."""
    rows.machine()
    rows.gateway()
    watched = Runtime(engine=runtime.engine, owner="sweep", hints=hints)
    _sweep(watched, rows)
    return watched


def _sweep(its: Runtime, rows: Rows, *, gap: float = 1.0) -> Swept:
    """One tick, so many seconds after the one before."""
    rows.execute(
        "UPDATE duties SET ticked_at = clock_timestamp() - make_interval(secs => :gap)", gap=gap
    )
    return sweep.sweep(its)


def _overdue(rows: Rows, state: SpawnState, **more: object) -> tuple[str, str]:
    """A spawn past its deadline and due, with its job."""
    job = rows.request(state="running" if state is S.BUSY else "assigned")
    agent = rows.spawn(state, job=job, due=-1, **more)  # type: ignore[arg-type]  # columns by name
    rows.shift("spawns", agent, deadline_at=-1.0)
    return agent, job


def _failures(rows: Rows) -> int:
    states = rows.call(scaler_states.all_states)
    return states["local"].failure_streak if "local" in states else 0


@pytest.mark.parametrize("state", [S.SPAWNING, S.BOOTING])
def test_what_never_registered_in_time_ends_as_one_failure(
    its: Runtime, rows: Rows, hints: _Hints, state: SpawnState
) -> None:
    agent, job = _overdue(rows, state)
    assert _sweep(its, rows).ended == 1
    rows.shift("spawns", agent, due_at=-1.0)
    assert _sweep(its, rows).ended == 0
    assert rows.get("spawns", agent)["destroy_reason"] == "spawn-timeout"
    assert rows.get("scale_requests", job)["state"] == "waiting"
    assert _failures(rows) == 1
    assert rows.call(outcomes.find, agent).failed
    assert (Step.DESTROY, HERE) in hints.steps
    assert hints.admits > 0


def test_a_job_that_nobody_accepted_goes_elsewhere_and_counts_against_no_scaler(
    its: Runtime, rows: Rows
) -> None:
    agent, job = _overdue(rows, S.IDLE)
    rows.agent(agent)
    _sweep(its, rows)
    assert rows.get("spawns", agent)["state"] == "destroying"
    assert rows.get("scale_requests", job)["state"] == "waiting"
    assert _failures(rows) == 0


def test_a_running_job_whose_agent_stayed_away_fails_and_says_why(its: Runtime, rows: Rows) -> None:
    agent, job = rows.busy(due=-1)
    rows.agent(agent)
    rows.shift("agents", agent, unseen_since=-1801.0)
    _sweep(its, rows)
    assert rows.get("spawns", agent)["destroy_reason"] == "heartbeat-timeout"
    row = rows.get("scale_requests", job)
    assert row["state"] == "failed"
    assert "was not seen for 180" in row["result"]["error"]


@pytest.mark.parametrize("connected", [True, False])
def test_an_agent_that_ignores_a_cancellation_is_destroyed_after_the_time_it_had(
    its: Runtime, rows: Rows, connected: bool
) -> None:
    agent, job = rows.busy()
    rows.agent(agent, gateway="gw-1" if connected else None)
    rows.shift("spawns", agent, deadline_at=86_400.0)
    for _ in range(2):  # a repeat does not prolong it
        assert request.cancel(its, job, reason="enough") is RequestState.RUNNING
    left = "deadline_at - clock_timestamp() BETWEEN interval '30 s' AND interval '60 s'"
    assert rows.count("spawns", f"{left} AND due_at < deadline_at + interval '1 s'") == 1
    assert _sweep(its, rows).ended == 0
    rows.shift("spawns", agent, deadline_at=-1.0, due_at=-1.0)
    assert _sweep(its, rows).ended == 1
    assert rows.get("spawns", agent)["destroy_reason"] == "shutdown"
    row = rows.get("scale_requests", job)
    assert row["state"] == "cancelled"
    assert row["result"]["error"] == (
        "enough; its agent did not stop the job in time, so it was destroyed"
    )
    assert row["sealed_payload"] is None


def test_a_cancelled_job_that_ends_in_time_keeps_its_true_result(its: Runtime, rows: Rows) -> None:
    agent, job = rows.busy()
    rows.agent(agent)
    request.cancel(its, job)
    assert finish.finish(its, agent_id=agent, job_id=job, result={"status": "succeeded"})
    rows.shift("spawns", agent, deadline_at=900.0, due_at=-1.0)
    _sweep(its, rows)
    assert rows.get("scale_requests", job)["state"] == "succeeded"
    assert rows.get("spawns", agent)["destroy_reason"] == "job-complete"


@pytest.mark.parametrize(("absent", "ends"), [(100.0, False), (121.0, True)])
def test_a_dead_gateway_shortens_the_wait_for_its_agents(
    its: Runtime, rows: Rows, absent: float, ends: bool
) -> None:
    rows.gateway("gw-2")
    agent, _ = rows.busy(due=-1)
    rows.agent(agent, gateway="gw-2")
    rows.shift("gateways", "gw-2", last_heartbeat=-absent)
    assert _sweep(its, rows).ended == int(ends)
    assert rows.get("gateways", "gw-2")["dead_at"] is not None
    assert rows.get("agents", agent)["unseen_since"] is not None


@pytest.mark.parametrize(("absent", "ends"), [(490.0, False), (510.0, True)])
def test_where_many_come_back_from_a_dead_gateway_each_has_the_time_that_all_of_them_take(
    its: Runtime, rows: Rows, absent: float, ends: bool
) -> None:
    rows.gateway("gw-2")
    agent, _ = rows.busy(due=-1)
    rows.agent(agent, gateway="gw-2")
    rows.execute(
        "INSERT INTO agents (agent_id, labels, gate, gateway, connection_number)"
        " SELECT 'back-' || n, '{}', '{}', 'gw-1', 2 FROM generate_series(1, 9999) AS n"
    )
    rows.shift("gateways", "gw-2", last_heartbeat=-absent)
    assert _sweep(its, rows).ended == int(ends)
    assert rows.get("agents", agent)["unseen_since"] is not None


def test_without_a_gateway_that_could_have_seen_agents_nobody_is_condemned(
    its: Runtime, rows: Rows
) -> None:
    _overdue(rows, S.BOOTING)
    agent, _ = rows.busy(due=-1)
    rows.agent(agent)
    rows.shift("agents", agent, unseen_since=-9_999.0)
    rows.shift("gateways", "gw-1", last_heartbeat=-16.0)
    assert _sweep(its, rows).ended == 0


def test_a_sweep_that_was_away_itself_condemns_nobody_and_moves_the_clocks(
    its: Runtime, rows: Rows
) -> None:
    agent, _ = _overdue(rows, S.BOOTING)
    absent, _ = rows.busy(due=-1)
    rows.agent(absent)
    rows.shift("agents", absent, unseen_since=-1_900.0)
    long_overdue, _ = _overdue(rows, S.BOOTING)
    rows.shift("spawns", long_overdue, deadline_at=-900.0)
    rows.execute("UPDATE observation SET watched_at = watched_at - interval '600 s'")
    assert _sweep(its, rows, gap=600).ended == 0
    assert rows.count("spawns", "deadline_at > clock_timestamp() + interval '500 s'") == 1
    for row in (agent, absent):
        rows.shift("spawns", row, due_at=-1.0)
    assert _sweep(its, rows).ended == 0, "agents have the grace to return"
    rows.shift("spawns", long_overdue, due_at=-1.0)
    assert _sweep(its, rows).ended == 1, "its deadline was over before nobody watched"


def test_gateways_that_lost_the_database_with_the_sweep_are_not_declared_dead_at_once(
    its: Runtime, rows: Rows
) -> None:
    rows.shift("gateways", "gw-1", last_heartbeat=-600.0)
    _sweep(its, rows, gap=600)
    assert rows.get("gateways", "gw-1")["dead_at"] is None


def test_a_mass_absence_points_at_the_observer_and_ends_nobody(its: Runtime, rows: Rows) -> None:
    for _ in range(12):
        agent, _ = rows.busy(due=-1)
        rows.agent(agent)
        rows.shift("agents", agent, unseen_since=-9_999.0)
    assert _sweep(its, rows).ended == 0
    for _ in range(13):
        rows.agent(rows.busy()[0])
    rows.execute("UPDATE spawns SET due_at = now() - interval '1 s'")
    assert _sweep(its, rows).ended == 12


def test_reservations_on_a_machine_that_went_away_are_given_back_uncounted(
    its: Runtime, rows: Rows
) -> None:
    job = rows.request(state="assigned")
    rows.spawn(job=job, due=-1)
    rows.shift("machines", MACHINE, last_heartbeat=-60.0)
    _sweep(its, rows)
    row = rows.get("scale_requests", job)
    assert (row["state"], row["requeues"]) == ("waiting", 0)
    assert rows.count("spawns") == 0
    assert rows.get("machines", MACHINE)["state"] == "unreachable"


def test_hints_go_where_somebody_can_act_and_nowhere_else(
    its: Runtime, rows: Rows, hints: _Hints
) -> None:
    rows.machine("away", state="unreachable")
    offered = rows.spawn(S.IDLE, job=rows.request(state="assigned"), due=-1)
    rows.agent(offered)
    absent, _ = rows.busy(due=-1)
    rows.agent(absent)
    rows.shift("agents", absent, unseen_since=-5.0)
    booting = rows.spawn(S.BOOTING, due=-1)
    for place in (MACHINE, "away"):
        rows.spawn(S.SPAWNING, machine_id=place, due=-1)
        rows.spawn(S.DESTROYING, machine_id=place, due=-1)
    _sweep(its, rows)
    assert sorted(hints.steps) == [(Step.DESTROY, HERE), (Step.START, HERE)]
    assert set(hints.inspected) == {absent, booting}
    assert hints.woken == [("gw-1", offered)]


def test_a_destroy_past_its_bound_is_quarantined_and_still_hinted(
    its: Runtime, rows: Rows, hints: _Hints
) -> None:
    agent = rows.spawn(S.DESTROYING, due=-1)
    rows.shift("spawns", agent, deadline_at=-1.0)
    assert _sweep(its, rows).quarantined == 1
    assert rows.get("spawns", agent)["state"] == "quarantined"
    rows.shift("spawns", agent, due_at=-1.0)
    _sweep(its, rows)
    assert (Step.DESTROY, HERE) in hints.steps


def test_a_row_that_cannot_be_ended_stops_no_other(its: Runtime, rows: Rows) -> None:
    bad, _ = _overdue(rows, S.BOOTING)
    good = [_overdue(rows, S.BOOTING)[0] for _ in range(5)]
    rows.execute(
        f"""
        CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.agent_id = '{bad}' AND NEW.state = 'destroying' THEN
                RAISE EXCEPTION 'poisoned';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER poison BEFORE UPDATE ON spawns FOR EACH ROW EXECUTE FUNCTION poison()
        """
    )
    try:
        assert _sweep(its, rows).ended == len(good)
    finally:
        rows.execute("DROP TRIGGER poison ON spawns; DROP FUNCTION poison()")
    assert rows.get("spawns", bad)["state"] == "booting"


def test_of_many_clocks_one_sweeps_and_each_end_happens_once(
    its: Runtime, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that no second tick begins meanwhile, however slow the machine is.
    monkeypatch.setattr(sweep, "INTERVAL_SECONDS", 100.0)
    monkeypatch.setattr(sweep, "LONGEST_GAP_SECONDS", 1_000.0)
    agents = [_overdue(rows, S.BOOTING)[0] for _ in range(20)]
    rows.execute("UPDATE duties SET ticked_at = clock_timestamp() - interval '100 s'")
    gate = threading.Barrier(8)

    def tick(_: int) -> Swept:
        gate.wait(20)
        return sweep.sweep(its)

    with ThreadPoolExecutor(8) as pool:
        swept = list(pool.map(tick, range(8)))
    assert [each.owned_tick for each in swept].count(True) == 1
    assert sum(each.ended for each in swept) == len(agents)
    assert _failures(rows) == len(agents)


def test_nothing_due_nothing_done(its: Runtime, rows: Rows, hints: _Hints) -> None:
    rows.spawn(S.BUSY, job=rows.request(state="running"))
    assert _sweep(its, rows) == Swept()
    assert (hints.steps, hints.inspected, hints.woken, hints.admits) == ([], [], [], 0)


def test_while_requests_wait_each_tick_asks_for_a_decision(
    its: Runtime, rows: Rows, hints: _Hints
) -> None:
    job = rows.request()
    for asked in (1, 2):
        _sweep(its, rows)
        assert hints.admits == asked
    rows.set("scale_requests", job, state="assigned")
    _sweep(its, rows)
    assert hints.admits == 2
