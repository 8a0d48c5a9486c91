"""A job's way from its request to the confirmed end of its agent, and every way off it."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kici_scaler.domain.request import RequestState
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import destroy, finish, inspect, register, request, start
from kici_scaler.service.hello import Hello, Refusal, Refused, Welcome
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.start import StartOrder
from kici_scaler.store import events, outcomes, scaler_states
from tests.integration.service import work
from tests.support.rows import KIND, MACHINE, Rows

R, S = RequestState, SpawnState

pytestmark = pytest.mark.usefixtures("one_place")


@pytest.fixture(autouse=True)
def _gateway(rows: Rows) -> None:
    rows.gateway("gw-1")
    rows.gateway("gw-2")


def _taken(runtime: Runtime, job: str = "job", **more: Any) -> StartOrder:
    """A job's spawn, taken by a backend worker."""
    request.submit(runtime, [parse_request(work.body(job, "roomy", **more))])
    orders, _ = start.take(runtime, backend_type=KIND, machine_id=MACHINE, most=9)
    return next(each for each in orders if each.row.job_id == job)


def _booting(runtime: Runtime, job: str = "job", **more: Any) -> StartOrder:
    order = _taken(runtime, job, **more)
    assert start.record_created(runtime, order, {"pid": "1"}, ()) is S.BOOTING
    return order


def _hello(order: StartOrder, *, number: int = 1, **more: Any) -> Hello:
    said = Hello(
        agent_id=order.row.agent_id,
        labels=order.row.agent_labels,
        connection_number=number,
        facts={"os": "linux"},
        token=order.agent_token,
    )
    return dataclasses.replace(said, **more)


def _idle(runtime: Runtime, job: str = "job", **more: Any) -> StartOrder:
    order = _booting(runtime, job, **more)
    assert isinstance(register.register(runtime, "gw-1", _hello(order)), Welcome)
    return order


def _busy(runtime: Runtime, job: str = "job", **more: Any) -> StartOrder:
    order = _idle(runtime, job, **more)
    assert finish.accept(runtime, agent_id=order.row.agent_id, job_id=job) is not None
    return order


def _destroyed(runtime: Runtime, order: StartOrder) -> None:
    orders, _ = destroy.take(runtime, backend_type=KIND, machine_id=MACHINE, most=9)
    (mine,) = (each for each in orders if each.row.agent_id == order.row.agent_id)
    assert destroy.confirm(runtime, mine, exit_cause={"code": 0})


def _finish(runtime: Runtime, order: StartOrder, job: str = "job", **result: Any) -> bool:
    return finish.finish(
        runtime,
        agent_id=order.row.agent_id,
        job_id=job,
        result={"status": "succeeded", "exitCode": 0, **result},
    )


def _state(rows: Rows, order: StartOrder) -> str | None:
    found = rows.all("SELECT state FROM spawns WHERE agent_id = :id", id=order.row.agent_id)
    return found[0][0] if found else None


def _job(rows: Rows, job: str = "job") -> str:
    return str(rows.get("scale_requests", job)["state"])


def _told(rows: Rows, job: str = "job") -> list[str]:
    return [each.type for each in rows.call(events.after, 0, job_id=job)]


def _failures(rows: Rows, scaler: str = "roomy") -> int:
    states = rows.call(scaler_states.all_states)
    return states[scaler].failure_streak if scaler in states else 0


def test_a_job_goes_all_the_way_and_leaves_an_outcome(runtime: Runtime, rows: Rows) -> None:
    order = _busy(runtime)
    assert _finish(runtime, order)
    assert (_job(rows), _state(rows, order)) == ("succeeded", "destroying")
    _destroyed(runtime, order)
    assert rows.count("spawns") == rows.count("agents") == rows.count("agent_tokens") == 0
    outcome = rows.call(outcomes.find, order.row.agent_id)
    assert (outcome.destroy_reason, outcome.failed) == ("job-complete", False)
    assert (outcome.first_adopter, outcome.job_id) == ("gw-1", "job")
    assert set(outcome.timings) == {
        "requested", "reserved", "spawning", "booting", "idle", "busy", "destroying", "gone",
    }  # fmt: skip
    assert _told(rows) == ["agent.connecting", "request.finished"]


def test_no_secret_of_a_job_stands_in_any_row_when_it_is_over(runtime: Runtime, rows: Rows) -> None:
    order = _busy(runtime, registryCredentials={"keyId": "k", "sealed": "cmVnaXN0cnk="})
    _finish(runtime, order)
    tables = rows.all("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for (table,) in tables:
        text = str(rows.all(f"SELECT t::text FROM {table} t"))
        assert order.agent_token not in text
        assert "cmVnaXN0cnk=" not in text
        assert work.ENVELOPE["sealed"] not in text


def test_an_agent_that_registers_before_its_creation_is_recorded_is_welcome(
    runtime: Runtime, rows: Rows
) -> None:
    order = _taken(runtime)
    welcome = register.register(runtime, "gw-1", _hello(order))
    assert isinstance(welcome, Welcome)
    assert (welcome.job_id, welcome.warm, welcome.state) == ("job", False, S.IDLE)
    assert start.record_created(runtime, order, {"pid": "1"}, ()) is S.IDLE
    assert rows.get("spawns", order.row.agent_id)["backend_ref"] == {"pid": "1"}


def test_whoever_lost_its_lease_is_told_to_undo(runtime: Runtime, rows: Rows) -> None:
    order = _taken(runtime)
    rows.shift("spawns", order.row.agent_id, lease_expires_at=-0.1)
    (again,), _ = start.take(runtime, backend_type=KIND, machine_id=MACHINE, most=9)
    assert start.record_created(runtime, order, {"pid": "1"}, ()) is None
    assert not start.record_failure(runtime, order, "late")
    assert not start.still_wanted(runtime, order)
    assert start.still_wanted(runtime, again)
    assert start.record_created(runtime, again, {"pid": "2"}, ()) is S.BOOTING
    assert _failures(rows) == 0


def test_a_start_that_failed_counts_once_and_the_job_waits_again(
    runtime: Runtime, rows: Rows
) -> None:
    order = _taken(runtime)
    assert start.record_failure(runtime, order, "no such image", log_tail=("boom",))
    assert (_job(rows), _state(rows, order)) == ("waiting", "destroying")
    assert _failures(rows) == 1
    row = rows.get("scale_requests", "job")
    assert (row["requeues"], row["last_provisioning_error"]) == (1, "no such image")
    outcome = rows.call(outcomes.find, order.row.agent_id)
    assert (outcome.failed, outcome.log_tail) == (True, ("boom",))
    assert _told(rows) == ["request.requeued", "scaler.failed"]
    assert not start.record_failure(runtime, order, "again")
    assert _failures(rows) == 1


def test_a_failure_that_the_job_brought_on_itself_is_not_its_scalers(
    runtime: Runtime, rows: Rows
) -> None:
    start.record_failure(runtime, _taken(runtime), "no such image", job_caused=True)
    assert _failures(rows) == 0
    assert _job(rows) == "waiting"


def test_a_job_whose_starts_keep_failing_fails_with_the_cause(runtime: Runtime, rows: Rows) -> None:
    for number in range(2):
        order = _taken(runtime, maxRequeues=1)
        start.record_failure(runtime, order, f"cause {number}")
        rows.execute("DELETE FROM scaler_states")
        work.run_pass(runtime)
    row = rows.get("scale_requests", "job")
    assert (row["state"], row["result"]["error"]) == ("failed", "cause 1")
    assert row["sealed_payload"] is None


def test_a_result_of_another_job_leaves_an_agent_to_its_own(runtime: Runtime, rows: Rows) -> None:
    order = _busy(runtime)
    other = rows.request(state="failed")
    assert _finish(runtime, order, other)
    assert (_job(rows), _state(rows, order), _job(rows, other)) == ("running", "busy", "failed")
    assert _finish(runtime, order)
    assert (_job(rows), _state(rows, order)) == ("succeeded", "destroying")


def test_any_registration_clears_the_streak(runtime: Runtime, rows: Rows) -> None:
    order = _booting(runtime)
    rows.call(scaler_states.count_failures, ["roomy"], base_seconds=1, max_seconds=9)
    register.register(runtime, "gw-1", _hello(order))
    assert _failures(rows) == 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"token": "wrong"}, Refusal.BAD_TOKEN),
        ({"token": None}, Refusal.BAD_TOKEN),
        ({"labels": ("roomy", "gpu")}, Refusal.BAD_LABELS),
        ({"agent_id": "scaler-bare-metal-ffffffffffff"}, Refusal.UNOWNED),
    ],
)
def test_who_may_not_stay_is_told_why_and_changes_nothing(
    runtime: Runtime, rows: Rows, more: dict[str, Any], why: Refusal
) -> None:
    order = _booting(runtime)
    refused = register.register(runtime, "gw-1", _hello(order, **more))
    assert isinstance(refused, Refused)
    assert refused.why is why
    assert refused.message
    assert (_state(rows, order), rows.count("agents")) == ("booting", 0)


def test_a_token_is_good_for_its_own_agent_only(runtime: Runtime) -> None:
    mine, other = _booting(runtime, "a"), _booting(runtime, "b")
    refused = register.register(runtime, "gw-1", _hello(mine, token=other.agent_token))
    assert isinstance(refused, Refused)
    assert refused.why is Refusal.BAD_TOKEN


def test_an_agent_may_say_where_it_runs(runtime: Runtime) -> None:
    order = _booting(runtime)
    labels = (*order.row.agent_labels, "kici:os:linux", "kici:host:h1")
    welcome = register.register(runtime, "gw-1", _hello(order, labels=labels))
    assert isinstance(welcome, Welcome)
    assert {"kici:os:linux", "kici:host:h1"} <= set(welcome.labels)


def test_an_agent_returns_with_its_resume_token_when_the_first_is_past_its_end(
    runtime: Runtime, rows: Rows
) -> None:
    order = _busy(runtime)
    rows.execute("UPDATE agent_tokens SET expires_at = now() - interval '1 s'")
    back = _hello(order, number=2, resume_is_valid=True)
    assert isinstance(register.register(runtime, "gw-2", back), Welcome)
    assert rows.get("agents", order.row.agent_id)["gateway"] == "gw-2"


def test_an_older_connection_is_superseded(runtime: Runtime) -> None:
    order = _booting(runtime)
    register.register(runtime, "gw-1", _hello(order, number=5))
    refused = register.register(runtime, "gw-2", _hello(order, number=5))
    assert isinstance(refused, Refused)
    assert refused.why is Refusal.SUPERSEDED


def test_an_agent_of_a_machine_that_goes_is_told_to_go(runtime: Runtime) -> None:
    order = _booting(runtime)
    request.cancel(runtime, "job")
    refused = register.register(runtime, "gw-1", _hello(order, resume_is_valid=True))
    assert isinstance(refused, Refused)
    assert refused.why is Refusal.TOLD_TO_GO


def test_a_gateway_that_was_declared_dead_adopts_nobody(runtime: Runtime, rows: Rows) -> None:
    order = _booting(runtime)
    rows.shift("gateways", "gw-1", dead_at=0.0)
    refused = register.register(runtime, "gw-1", _hello(order))
    assert isinstance(refused, Refused)
    assert refused.why is Refusal.FOR_NOW


def test_a_late_disconnect_changes_nothing(runtime: Runtime, rows: Rows) -> None:
    order = _busy(runtime)
    register.register(runtime, "gw-2", _hello(order, number=2))
    assert not register.disconnected(runtime, "gw-1", order.row.agent_id, 1)
    assert register.disconnected(runtime, "gw-2", order.row.agent_id, 2)
    assert rows.get("agents", order.row.agent_id)["unseen_since"] is not None


def test_an_agent_that_flaps_between_gateways_ends_with_its_newest_connection(
    runtime: Runtime, rows: Rows
) -> None:
    order = _busy(runtime)
    with ThreadPoolExecutor(8) as pool:
        doing: list[Future[Any]] = []
        for number in range(2, 102):
            gateway = f"gw-{1 + number % 2}"
            hello = _hello(order, number=number, resume_is_valid=True)
            doing.append(pool.submit(register.register, runtime, gateway, hello))
            doing.append(
                pool.submit(register.disconnected, runtime, gateway, order.row.agent_id, number - 2)
            )
        for done in doing:
            done.result(60)
    row = rows.get("agents", order.row.agent_id)
    assert (row["connection_number"], row["gateway"]) == (101, "gw-2")
    assert row["unseen_since"] is None
    assert _state(rows, order) == "busy"


def test_a_result_of_another_agents_job_changes_nothing_of_it(runtime: Runtime, rows: Rows) -> None:
    mine, other = _busy(runtime, "a"), _idle(runtime, "b")
    assert _finish(runtime, other, "a", status="failed")
    assert (_job(rows, "a"), _state(rows, mine)) == ("running", "busy")


def test_a_result_for_an_unknown_job_is_not_acknowledged(runtime: Runtime) -> None:
    assert not _finish(runtime, _busy(runtime), "unknown")


def test_a_result_that_is_sent_again_is_acknowledged_and_counts_once(
    runtime: Runtime, rows: Rows
) -> None:
    order = _busy(runtime)
    assert _finish(runtime, order)
    assert _finish(runtime, order, status="failed")
    assert _job(rows) == "succeeded"
    assert _told(rows).count("request.finished") == 1


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("error", "failed"),
        ("nonsense", "failed"),
    ],
)
def test_every_verdict_of_an_agent_ends_its_job(
    runtime: Runtime, rows: Rows, status: str, state: str
) -> None:
    assert _finish(runtime, _busy(runtime), status=status)
    assert _job(rows) == state


def test_a_job_that_was_declined_goes_elsewhere(runtime: Runtime, rows: Rows) -> None:
    order = _idle(runtime)
    finish.decline(runtime, agent_id=order.row.agent_id, job_id="job", reason="no room")
    assert (_job(rows), _state(rows, order)) == ("waiting", "destroying")
    work.run_pass(runtime)
    assert _job(rows) == "assigned"


def test_an_exit_before_registration_is_a_failed_provision(runtime: Runtime, rows: Rows) -> None:
    order = _booting(runtime)
    (looked,) = inspect.to_inspect(runtime, [order.row.agent_id])
    assert inspect.record_exit(runtime, looked, why="it exited with code 1", log_tail=("x",))
    assert (_job(rows), _failures(rows)) == ("waiting", 1)
    assert not inspect.record_exit(runtime, looked, why="again")
    assert _failures(rows) == 1


def test_an_exit_in_mid_job_fails_the_job_and_is_not_its_scalers(
    runtime: Runtime, rows: Rows
) -> None:
    order = _busy(runtime)
    register.disconnected(runtime, "gw-1", order.row.agent_id, 1)
    (looked,) = inspect.to_inspect(runtime, [order.row.agent_id])
    assert inspect.record_exit(runtime, looked, why="it was killed")
    assert (_job(rows), _failures(rows)) == ("failed", 0)
    assert rows.get("scale_requests", "job")["result"]["error"] == "it was killed"


def test_a_result_that_was_left_in_the_spool_counts_more_than_the_exit(
    runtime: Runtime, rows: Rows
) -> None:
    order = _busy(runtime)
    register.disconnected(runtime, "gw-1", order.row.agent_id, 1)
    (looked,) = inspect.to_inspect(runtime, [order.row.agent_id])
    spool = json.dumps({"jobId": "job", "result": {"status": "succeeded", "exitCode": 0}})
    assert inspect.record_exit(runtime, looked, why="it exited", spool=spool)
    assert _job(rows) == "succeeded"


@pytest.mark.parametrize("spool", ["", "{", "[]", '{"jobId": "other", "result": {}}', "7"])
def test_a_spool_that_says_nothing_of_this_job_is_not_believed(
    runtime: Runtime, rows: Rows, spool: str
) -> None:
    order = _busy(runtime)
    register.disconnected(runtime, "gw-1", order.row.agent_id, 1)
    (looked,) = inspect.to_inspect(runtime, [order.row.agent_id])
    assert inspect.record_exit(runtime, looked, why="it exited", spool=spool)
    assert _job(rows) == "failed"


def test_a_result_and_an_exit_at_the_same_time_give_one_end(runtime: Runtime, rows: Rows) -> None:
    for number in range(15):
        job = f"job-{number}"
        order = _busy(runtime, job)
        register.disconnected(runtime, "gw-1", order.row.agent_id, 1)
        (looked,) = inspect.to_inspect(runtime, [order.row.agent_id])
        with ThreadPoolExecutor(2) as pool:
            finished = pool.submit(_finish, runtime, order, job)
            ended = pool.submit(inspect.record_exit, runtime, looked, why="it exited")
            assert finished.result(20)
            assert _job(rows, job) == ("failed" if ended.result(20) else "succeeded")
        assert _told(rows, job).count("request.finished") == 1


def test_a_destroy_that_is_put_off_is_taken_again_after_its_pause(
    runtime: Runtime, rows: Rows
) -> None:
    order = _booting(runtime)
    request.cancel(runtime, "job")
    (taken,), _ = destroy.take(runtime, backend_type=KIND, machine_id=MACHINE, most=9)
    assert destroy.postpone(runtime, taken) is S.DESTROYING
    assert destroy.take(runtime, backend_type=KIND, machine_id=MACHINE, most=9)[0] == []
    rows.shift("spawns", order.row.agent_id, retry_at=-0.1)
    _destroyed(runtime, order)


def _unreadable(rows: Rows, state: SpawnState, job: str | None = None, **more: Any) -> str:
    """A spawn under a configuration that this version does not understand."""
    odd = rows.revision(document={"version": 99})
    return rows.spawn(state, job=job, scaler="roomy", revision_id=odd, **more)


def test_a_reservation_that_cannot_be_read_is_given_back_and_holds_up_no_other(
    runtime: Runtime, rows: Rows
) -> None:
    bad = _unreadable(rows, S.RESERVED, rows.request("bad", state="assigned", labels=["roomy"]))
    rows.shift("spawns", bad, reserved_at=-60.0)
    assert _taken(runtime, "fine").row.job_id == "fine"
    assert rows.count("spawns", "agent_id = :bad", bad=bad) == 0
    assert (_job(rows, "bad"), rows.get("scale_requests", "bad")["requeues"]) == ("waiting", 0)
    work.run_pass(runtime)
    assert _job(rows, "bad") == "assigned"


def test_an_end_that_cannot_be_read_is_put_off_and_holds_up_no_other(
    runtime: Runtime, rows: Rows
) -> None:
    bad = _unreadable(rows, S.DESTROYING, due=-60)
    order = _booting(runtime)
    request.cancel(runtime, "job")
    _destroyed(runtime, order)
    row = rows.get("spawns", bad)
    assert (row["state"], row["lease_holder"]) == ("destroying", None)
    assert row["retry_at"] is not None


def test_what_cannot_be_read_is_not_inspected(runtime: Runtime, rows: Rows) -> None:
    bad = _unreadable(rows, S.BOOTING, backend_ref="{}", lease_token=1)
    order = _booting(runtime)
    looked = inspect.to_inspect(runtime, [bad, order.row.agent_id])
    assert [each.row.agent_id for each in looked] == [order.row.agent_id]
