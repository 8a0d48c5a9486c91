"""Every metric of the cluster says what the rows say."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.domain.windows import Windows
from kici_scaler.metrics import METRICS, Metric, declared
from kici_scaler.service import destroy, ending, figures, start
from kici_scaler.service.figures import Distribution, Figures
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import counts, settings, warm_books
from kici_scaler.store.counts import Count
from kici_scaler.store.warm_books import What
from tests.support.rows import Rows

S = SpawnState
DOCUMENT = {
    "version": 1,
    "scalers": [
        {
            "name": "local",
            "type": "bare-metal",
            "maxAgents": 10,
            "labelSets": [{"labels": ["linux"], "binaryPath": "builtin:agent"}],
        },
        {
            "name": "cloud",
            "type": "event",
            "maxAgents": 10,
            "provisioningTargets": ["https://example.test/hook"],
            "labelSets": [{"labels": ["cloud"]}],
        },
    ],
}


@pytest.fixture
def runtime(rows: Rows, engine: Engine) -> Runtime:
    """A cluster with one local and one event scaler."""
    rows.revision(active=True, document=DOCUMENT)
    return Runtime(engine, "test")


def _value(found: Figures, metric: Metric, *labels: str) -> float | None:
    return found.values.get(metric, {}).get(labels)


def test_an_empty_cluster_shows_every_closed_list_at_zero(runtime: Runtime) -> None:
    found = figures.read(runtime)
    for metric in METRICS:
        for labels in metric.known:
            assert _value(found, metric, *labels) == 0, (metric.name, labels)
    assert _value(found, declared.QUARANTINED) == 0
    assert _value(found, declared.OLDEST_DUE) == 0
    assert _value(found, declared.DRAINING) == 0


def test_usage_is_by_scaler_and_of_all(rows: Rows, runtime: Runtime) -> None:
    rows.spawn(S.BOOTING, cpu_millis=1500, memory_bytes=2**30)
    rows.spawn(S.QUARANTINED, cpu_millis=500, memory_bytes=2**20)
    found = figures.read(runtime)
    assert _value(found, declared.CPUS_USED, "local", "bare-metal") == 2.0
    assert _value(found, declared.CPUS_USED, "cloud", "event") == 0
    assert _value(found, declared.MEMORY_USED, "__global__", "__global__") == 2**30 + 2**20
    assert _value(found, declared.AGENTS, "local", "booting") == 1
    assert _value(found, declared.QUARANTINED) == 1


def test_machines_are_told_by_state_and_a_silent_one_is_not_up(
    rows: Rows, runtime: Runtime
) -> None:
    rows.machine("m1")
    rows.machine("m2", state="draining")
    rows.machine("m3")
    rows.execute(
        "UPDATE machines SET last_heartbeat = now() - interval '1 h' WHERE machine_id='m3'"
    )
    found = figures.read(runtime)
    states = {
        state: _value(found, declared.MACHINES, "bare-metal", state)
        for state in ("up", "draining", "unreachable", "silent")
    }
    assert states == {"up": 1, "draining": 1, "unreachable": 0, "silent": 1}


def test_waiting_requests_are_told_by_why(rows: Rows, runtime: Runtime) -> None:
    rows.request(wait_code="at-capacity")
    rows.request(wait_code="at-capacity")
    rows.request(wait_code="backoff")
    rows.request(state="succeeded", wait_code="at-capacity")
    found = figures.read(runtime)
    assert _value(found, declared.REQUESTS_WAITING, "at-capacity") == 2
    assert _value(found, declared.REQUESTS_WAITING, "backoff") == 1
    assert _value(found, declared.REQUESTS_WAITING, "no-machine") == 0
    assert _value(found, declared.REQUESTS, "waiting") == 3


def test_the_longest_overdue_row_is_told(rows: Rows, runtime: Runtime) -> None:
    rows.spawn(due=-30)
    overdue = _value(figures.read(runtime), declared.OLDEST_DUE)
    assert overdue is not None
    assert 30 <= overdue < 60


def test_reaping_is_blocked_until_somebody_watches(rows: Rows, runtime: Runtime) -> None:
    assert _value(figures.read(runtime), declared.REAP_BLOCKED) == 1
    rows.execute("INSERT INTO observation (watched_at, grace_until) VALUES (now(), now())")
    assert _value(figures.read(runtime), declared.REAP_BLOCKED) == 0
    rows.execute("UPDATE observation SET grace_until = now() + interval '1 h'")
    assert _value(figures.read(runtime), declared.REAP_BLOCKED) == 1


def test_provisions_are_told_as_long_as_they_are_not_gone(rows: Rows, runtime: Runtime) -> None:
    rows.gateway()
    cloud: dict[str, Any] = {"scaler": "cloud", "backend_type": "event", "machine_id": None}
    absent = rows.agent(rows.spawn(S.IDLE, **cloud), gateway=None)
    rows.shift("agents", absent, unseen_since=-3600)
    rows.agent(rows.spawn(S.IDLE, **cloud))
    rows.spawn(S.DESTROYING, **cloud)
    found = figures.read(runtime)
    assert _value(found, declared.PROVISIONS_ACTIVE, "cloud") == 3
    assert _value(found, declared.UNSEEN_PROVISIONS) == 1


def test_warm_pools_are_counted_by_scaler(rows: Rows, runtime: Runtime) -> None:
    for label_set in ("linux", "linux,big"):
        rows.call(
            warm_books.count,
            [
                warm_books.Count("local", label_set, What.SPAWN, 2),
                warm_books.Count("local", label_set, What.MISS_SHAPE),
                warm_books.Count("local", label_set, What.LOST),
            ],
        )
    found = figures.read(runtime)
    assert _value(found, declared.WARM_SPAWNS, "local") == 4
    assert _value(found, declared.WARM_LOST, "local") == 2
    assert _value(found, declared.WARM_MISSES, "local", "shape") == 2


def test_draining_is_told(rows: Rows, runtime: Runtime) -> None:
    rows.call(settings.put, "draining", True, changed_by="test")
    assert _value(figures.read(runtime), declared.DRAINING) == 1


@pytest.mark.parametrize(("job", "bound"), [(True, "true"), (False, "false")])
def test_a_failed_start_is_counted_once_however_many_see_it(
    rows: Rows, runtime: Runtime, job: bool, bound: str
) -> None:
    agent = rows.spawn(S.BOOTING, job=rows.request(state="assigned") if job else None)
    for _ in range(2):
        rows.call(
            ending.end,
            [agent],
            states=(S.BOOTING,),
            reason=DestroyReason.SPAWN_TIMEOUT,
            why="it did not register",
            windows=Windows(),
            failed=True,
        )
    found = figures.read(runtime)
    assert _value(found, declared.SPAWN_FAILURES, "bare-metal", bound) == 1
    assert found.values.get(declared.PROVISION_TIMEOUTS) is None


def test_a_provision_that_did_not_register_in_time_is_counted(rows: Rows, runtime: Runtime) -> None:
    agent = rows.spawn(S.BOOTING, scaler="cloud", backend_type="event", machine_id=None)
    rows.call(
        ending.end,
        [agent],
        states=(S.BOOTING,),
        reason=DestroyReason.SPAWN_TIMEOUT,
        why="it did not register",
        windows=Windows(),
        failed=True,
    )
    assert _value(figures.read(runtime), declared.PROVISION_TIMEOUTS, "cloud") == 1


def test_a_step_that_is_taken_up_again_counts_the_lease_that_ran_out(
    rows: Rows, runtime: Runtime
) -> None:
    rows.machine()
    held: dict[str, Any] = {
        "lease_token": 1,
        "lease_holder": "dead",
        "lease_expires_at": "2000-01-01",
    }
    starting = rows.spawn(S.SPAWNING, **held)
    rows.shift("spawns", starting, deadline_at=60)
    rows.spawn(S.SPAWNING, retry_at="2000-01-01")
    rows.spawn(S.DESTROYING, **held)
    rows.spawn(S.DESTROYING)
    start.take(runtime, backend_type="bare-metal", machine_id="m1", most=9)
    destroy.take(runtime, backend_type="bare-metal", machine_id="m1", most=9)
    found = figures.read(runtime)
    assert _value(found, declared.LEASES_EXPIRED, "bare-metal", "start") == 1
    assert _value(found, declared.LEASES_EXPIRED, "bare-metal", "destroy") == 1


def test_counts_of_another_version_are_left_out(rows: Rows, runtime: Runtime) -> None:
    rows.execute("INSERT INTO metric_counts (name, n) VALUES ('kici_of_tomorrow_total', 1)")
    rows.call(counts.add, [Count(declared.SPAWN_FAILURES, ("container", "true"))])
    found = figures.read(runtime)
    assert _value(found, declared.SPAWN_FAILURES, "container", "true") == 1


def test_buckets_of_other_bounds_count_where_they_belong() -> None:
    spread = Distribution()
    for bound, n in ((0.5, 1.0), (3.0, 2.0), (float("inf"), 4.0)):
        spread.buckets[bound] += n
    assert spread.cumulative((1, 5)) == [(1, 1), (5, 3), (float("inf"), 7)]
