"""What a dispatcher is told, once, twice and by many; and what stands in the rows then."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kici_scaler.domain.request import RequestState, Result
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import admit, queues, request
from kici_scaler.service.answers import Answer
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import machines, scaler_states, settings
from tests.integration.service import work
from tests.integration.service.work import Servers
from tests.support.admissions import History
from tests.support.rows import Rows, announcement

R, S = RequestState, SpawnState

pytestmark = pytest.mark.usefixtures("one_place")


def _submit(runtime: Runtime, *bodies: dict[str, Any]) -> list[Answer]:
    return request.submit(runtime, [parse_request(each) for each in bodies])


def _ask(runtime: Runtime, job: str, *labels: str, **more: Any) -> Answer:
    (answer,) = _submit(runtime, work.body(job, *(labels or ("linux",)), **more))
    return answer


def test_a_request_that_fits_is_being_spawned_and_says_where(runtime: Runtime, rows: Rows) -> None:
    answer = _ask(runtime, "job")
    assert (answer.result, answer.state, answer.reason) == (Result.SPAWNING, R.ASSIGNED, "")
    assert (answer.backend_type, answer.scaler) == ("bare-metal", "local")
    assert answer.agent_id is not None
    assert answer.agent_id.startswith("scaler-bare-metal-")
    spawn = rows.get("spawns", answer.agent_id)
    assert (spawn["job_id"], spawn["machine_id"], spawn["state"]) == ("job", "m1", "reserved")
    assert spawn["owner"] == "test"
    assert spawn["revision_id"] == rows.one("SELECT id FROM config_revisions WHERE active")


def test_a_reservation_carries_the_shape_and_labels_of_its_agent(
    runtime: Runtime, rows: Rows
) -> None:
    answer = _ask(runtime, "job", "roomy", cpus=1.5)
    assert answer.agent_id is not None
    spawn = rows.get("spawns", answer.agent_id)
    assert (spawn["cpu_millis"], spawn["limit_cpu_millis"]) == (1500, 1500)
    assert "kici:scaler:roomy" in spawn["agent_labels"]
    assert spawn["label_set"] == ["roomy"]


def test_a_request_without_room_waits_and_says_why(runtime: Runtime, rows: Rows) -> None:
    _ask(runtime, "first")
    answer = _ask(runtime, "second")
    assert (answer.result, answer.state, answer.agent_id) == (Result.AT_CAPACITY, R.WAITING, None)
    assert "holds 1 of its 1 agents" in answer.reason
    assert answer.scaler == "local"


def test_a_request_that_would_not_wait_is_refused_and_stays_refused(
    runtime: Runtime, rows: Rows
) -> None:
    _ask(runtime, "first")
    answer = _ask(runtime, "second", wait=False)
    assert (answer.result, answer.state) == (Result.AT_CAPACITY, R.REFUSED)
    request.cancel(runtime, "first")
    admit.run_pass(runtime)
    again = _ask(runtime, "second", wait=False)
    assert (again.result, again.state) == (Result.AT_CAPACITY, R.REFUSED)
    assert rows.count("spawns") == 0


def test_a_request_that_nothing_serves_says_so_at_once(runtime: Runtime) -> None:
    answer = _ask(runtime, "job", "nobody", "linux")
    assert (answer.result, answer.state, answer.scaler) == (Result.NO_BACKEND, R.WAITING, None)
    assert "`nobody`" in answer.reason


def test_a_draining_cluster_skips_and_serves_again_after_it(runtime: Runtime, rows: Rows) -> None:
    rows.call(settings.put, "draining", True, changed_by="test")
    answer = _ask(runtime, "job")
    assert (answer.result, answer.state) == (Result.SKIPPED, R.WAITING)
    assert "draining" in answer.reason
    rows.call(settings.put, "draining", False, changed_by="test")
    admit.run_pass(runtime)
    assert _ask(runtime, "job").result is Result.SPAWNING


def test_a_scaler_that_backs_off_skips(runtime: Runtime, rows: Rows) -> None:
    rows.call(scaler_states.count_failures, ["local"], base_seconds=30, max_seconds=900)
    answer = _ask(runtime, "job")
    assert answer.result is Result.SKIPPED
    assert "backs off for another 30 s" in answer.reason


def test_a_scaler_whose_machines_are_gone_is_at_capacity(runtime: Runtime, rows: Rows) -> None:
    rows.set("machines", "m1", state="unreachable")
    answer = _ask(runtime, "job")
    assert answer.result is Result.AT_CAPACITY
    assert "machine `m1` is unreachable" in answer.reason


def test_a_machine_that_was_not_heard_of_takes_nothing(runtime: Runtime, rows: Rows) -> None:
    rows.shift("machines", "m1", last_heartbeat=-60.0)
    assert "not been heard of" in _ask(runtime, "job").reason
    rows.shift("machines", "m1", last_heartbeat=0.0)
    admit.run_pass(runtime)
    assert _ask(runtime, "job").result is Result.SPAWNING


def test_without_any_configuration_nothing_is_served(runtime: Runtime, rows: Rows) -> None:
    rows.execute("UPDATE config_revisions SET active = false")
    assert _ask(runtime, "job").result is Result.NO_BACKEND


@pytest.mark.parametrize(
    ("state", "spawn_state", "result"),
    [
        ("assigned", S.RESERVED, Result.SPAWNING),
        ("assigned", S.BOOTING, Result.SPAWNING),
        ("assigned", S.IDLE, Result.READY),
        ("running", S.BUSY, Result.READY),
        ("succeeded", None, Result.SPAWNING),
        ("failed", None, Result.FAILED),
        ("cancelled", None, Result.SKIPPED),
    ],
)
def test_a_late_repeat_is_told_what_became_of_the_job(
    runtime: Runtime, rows: Rows, state: str, spawn_state: SpawnState | None, result: Result
) -> None:
    digest = parse_request(work.body("job", "linux")).to_row().digest
    rows.request("job", state=state, digest=digest, run_id="run-of-job")
    if spawn_state is not None:
        rows.spawn(spawn_state, job="job")
    before = rows.count("spawns")
    answer = _ask(runtime, "job")
    assert (answer.result, answer.state) == (result, R(state))
    assert rows.count("spawns") == before


def test_a_failed_job_says_why(runtime: Runtime, rows: Rows) -> None:
    digest = parse_request(work.body("job", "linux")).to_row().digest
    rows.request("job", state="failed", digest=digest, result='{"error": "it burnt down"}')
    assert _ask(runtime, "job").reason == "it burnt down"


def test_another_request_under_a_known_job_id_is_told_that_the_first_stands(
    runtime: Runtime, rows: Rows
) -> None:
    _ask(runtime, "job")
    answer = _ask(runtime, "job", "roomy")
    assert answer.result is Result.FAILED
    assert "the first request stands" in answer.reason
    assert rows.get("scale_requests", "job")["labels"] == ["linux"]
    assert rows.count("spawns") == 1


def test_answers_come_in_the_order_of_the_questions(runtime: Runtime) -> None:
    names = ["z", "a", "m", "a"]
    answers = _submit(runtime, *(work.body(name, "roomy") for name in names))
    assert [each.job_id for each in answers] == names
    assert {each.result for each in answers} == {Result.SPAWNING}


def test_the_first_of_a_batch_gets_the_last_place(runtime: Runtime) -> None:
    answers = _submit(runtime, *(work.body(name, "linux") for name in ("z", "a", "m")))
    assert [each.result for each in answers] == [
        Result.SPAWNING,
        Result.AT_CAPACITY,
        Result.AT_CAPACITY,
    ]


def test_the_more_urgent_of_a_batch_gets_it_instead(runtime: Runtime) -> None:
    first, urgent = _submit(
        runtime, work.body("first", "linux"), work.body("urgent", "linux", priority=1)
    )
    assert (first.result, urgent.result) == (Result.AT_CAPACITY, Result.SPAWNING)


def test_nothing_asked_nothing_answered(runtime: Runtime) -> None:
    assert _submit(runtime) == []


def test_who_waited_longer_is_served_before_who_asks_now(runtime: Runtime, rows: Rows) -> None:
    _ask(runtime, "first")
    _ask(runtime, "second")
    request.cancel(runtime, "first")
    assert _ask(runtime, "third").result is Result.AT_CAPACITY
    assert _ask(runtime, "second").result is Result.SPAWNING


def test_a_requeued_job_gets_a_new_agent(runtime: Runtime, rows: Rows) -> None:
    first = _ask(runtime, "job")
    rows.execute("DELETE FROM spawns")
    rows.set("scale_requests", "job", state="waiting", routed_scaler=None)
    admit.run_pass(runtime)
    second = _ask(runtime, "job")
    assert second.result is Result.SPAWNING
    assert second.agent_id != first.agent_id


def test_the_same_job_from_sixteen_at_once_gets_one_agent(
    processes: ProcessPoolExecutor, servers: Servers, history: History
) -> None:
    for number in range(10):
        body = work.body(f"job-{number}", "roomy")
        asking = [processes.submit(work.submit, servers, [body], seed=n) for n in range(16)]
        answers = [done.result(60)[0] for done in asking]
        assert {each.result for each in answers} <= {Result.SPAWNING, Result.QUEUED}
        told = {each.agent_id for each in answers} - {None}
        assert len(told) == 1
    assert history.reservations() == {f"job-{number}": 1 for number in range(10)}


def test_batches_that_overlap_from_many_at_once_store_each_job_once(
    processes: ProcessPoolExecutor, servers: Servers, history: History, rows: Rows
) -> None:
    names = [f"job-{number}" for number in range(80)]
    orders = [names, names[::-1], names[40:] + names[:40], names[::-1]] * 2
    asking = [
        processes.submit(
            work.submit, servers, [work.body(name, "roomy") for name in order], seed=number
        )
        for number, order in enumerate(orders)
    ]
    for done in asking:
        assert len(done.result(120)) == len(names)
    assert history.reservations() == dict.fromkeys(names, 1)
    assert history.violations() == []
    assert rows.count("scale_requests") == len(names)


def test_a_queue_that_nobody_serves_does_not_hide_those_whose_time_has_come(
    runtime: Runtime, rows: Rows, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More requests wait for a paused scaler than a pass looks at."""
    monkeypatch.setattr(queues, "PER_QUEUE", 5)
    rows.execute("INSERT INTO scaler_states (scaler, standing) VALUES ('local', 'paused')")
    rows.execute("INSERT INTO scaler_states (scaler, standing) VALUES ('roomy', 'paused')")
    _submit(runtime, *(work.body(f"local-{n}", "linux") for n in range(8)))
    _submit(runtime, *(work.body(f"roomy-{n}", "roomy") for n in range(8)))
    for _ in range(5):
        admit.run_pass(runtime)
    assert rows.count("scale_requests", "wait_code = 'paused'") == 16
    rows.execute("UPDATE scaler_states SET standing = 'active' WHERE scaler = 'roomy'")
    for _ in range(3):
        admit.run_pass(runtime)
    assert rows.count("scale_requests", "state = 'assigned'") == 8


def test_requests_that_nothing_served_are_decided_again_when_another_kind_of_machine_comes(
    runtime: Runtime, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them wait than a pass looks at, and the new machine serves the last ones."""
    monkeypatch.setattr(queues, "PER_QUEUE", 5)
    _submit(runtime, *(work.body(f"nobody-{n}", "nobody") for n in range(8)))
    arm = ("roomy", "arm64", "kici:arch:arm64")
    _submit(runtime, *(work.body(f"arm-{n}", *arm) for n in range(3)))
    for _ in range(5):
        admit.run_pass(runtime)
    assert rows.count("scale_requests", "wait_code = 'no-backend'") == 11
    rows.call(machines.announce, announcement("m2", arch="arm64"))
    for _ in range(3):
        admit.run_pass(runtime)
    assert rows.count("scale_requests", "state = 'assigned'") == 3
