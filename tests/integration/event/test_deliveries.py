"""Scale-ups: owed to every target, tried in turn, given up in time, and never doubled."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kici_scaler.domain.spawn import DestroyReason
from kici_scaler.service import deliver, register
from kici_scaler.service.ports import Step
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import settings
from tests.integration.event.conftest import (
    AWAY,
    DONE,
    DOWN,
    ONE,
    REFUSED,
    SILENT,
    TWO,
    UP,
    URL,
    Cloud,
)


def test_every_target_gets_the_same_code_and_an_id_of_its_own(cloud: Cloud) -> None:
    agent = cloud.asked(ONE, TWO)
    one, two = cloud.take(UP)
    assert (one.row.target, two.row.target) == (ONE, TWO)
    assert one.row.request_id != two.row.request_id
    assert cloud.code_in(one) == cloud.code_in(two)
    assert one.row.provision is not None
    assert one.row.provision.orchestrator_url == URL
    assert len(cloud.code_in(one)) == 64
    assert cloud.state(agent) == "spawning"


def test_a_provision_that_cannot_be_read_is_given_back_and_holds_up_no_other(
    cloud: Cloud,
) -> None:
    odd = cloud.rows.revision(document={"version": 99})
    job = cloud.rows.request(state="assigned")
    bad = cloud.reserved(job=job)
    cloud.rows.set("spawns", bad, revision_id=odd)
    fine = cloud.asked(ONE)
    assert [each.row.agent_id for each in cloud.take(UP)] == [fine]
    assert cloud.rows.count("spawns", "agent_id = :bad", bad=bad) == 0
    assert cloud.rows.get("scale_requests", job)["state"] == "waiting"


def test_a_code_stands_nowhere_but_in_its_envelope(cloud: Cloud) -> None:
    cloud.asked()
    (order,) = cloud.take(UP)
    code = cloud.code_in(order)
    assert code not in repr(order)
    for table in ("claims", "event_deliveries", "spawns", "events", "outcomes"):
        assert all(code not in str(row) for row in cloud.rows.all(f"SELECT * FROM {table}"))


def test_a_provision_is_begun_once_however_many_workers_try(cloud: Cloud) -> None:
    for _ in range(8):
        cloud.reserved()
    with ThreadPoolExecutor(4) as pool:
        begun = sum(pool.map(lambda _: cloud.begin(), range(4)))
    assert begun == 8
    assert cloud.rows.count("claims") == cloud.rows.count("event_deliveries") == 8
    assert cloud.begin() == 0


def test_slots_of_the_scaler_bound_how_many_are_asked_for_at_once(cloud: Cloud) -> None:
    agents = [cloud.reserved() for _ in range(25)]
    assert cloud.begin() == 20
    assert sum(cloud.state(each) == "spawning" for each in agents) == 20
    cloud.tell(UP, DONE)
    assert cloud.begin() == 5


def test_a_delivery_is_taken_by_one_worker_at_a_time(cloud: Cloud) -> None:
    for _ in range(20):
        cloud.reserved()
    cloud.begin()
    start = threading.Barrier(4)

    def take(number: int) -> list[int]:
        start.wait(60)
        holder = Runtime(cloud.runtime.engine, f"worker-{number}")
        return [order.row.id for order in cloud.take(UP, most=10, holder=holder)]

    with ThreadPoolExecutor(4) as pool:
        taken = [each for found in pool.map(take, range(4)) for each in found]
    assert len(taken) == len(set(taken))
    assert len(taken) >= 10


def test_a_target_that_hangs_leaves_slots_for_the_others(cloud: Cloud) -> None:
    for _ in range(5):
        cloud.reserved(ONE)
    for _ in range(5):
        cloud.reserved(TWO)
    cloud.begin()
    first = [order.row.target for order in cloud.take(UP, most=10, per_target=2)]
    assert sorted(first) == [ONE, ONE, TWO, TWO]
    assert cloud.take(UP, most=10, per_target=2) == []
    other = Runtime(cloud.runtime.engine, "worker-2")
    assert len(cloud.take(UP, most=10, per_target=2, holder=other)) == 4


def test_the_first_answer_starts_the_time_to_register_and_the_codes(cloud: Cloud) -> None:
    agent = cloud.asked(ONE, TWO)
    before = cloud.rows.one("SELECT expires_at FROM claims")
    first, second = cloud.take(UP)
    assert first.row.provision is not None
    cloud.record(first, DONE)
    assert cloud.state(agent) == "booting"
    expires = cloud.rows.one("SELECT expires_at FROM claims")
    assert (before, expires) == (None, first.row.provision.code_until)
    deadline = cloud.rows.get("spawns", agent)["deadline_at"]
    assert (deadline - first.row.attempted_at).total_seconds() == pytest.approx(300)
    cloud.record(second, DONE)
    assert cloud.rows.get("spawns", agent)["deadline_at"] == deadline
    assert cloud.rows.one("SELECT expires_at FROM claims") == expires


def test_tries_that_reached_nobody_start_no_clock(cloud: Cloud) -> None:
    agent = cloud.asked()
    for _ in range(3):
        cloud.tell(UP, AWAY)
        cloud.retry_now()
    assert cloud.state(agent) == "spawning"
    assert cloud.rows.one("SELECT expires_at FROM claims") is None
    (row,) = cloud.deliveries(agent, UP)
    assert (row["attempts"], row["last_error"], row["may_have_acted"]) == (
        3, "nobody listens", False,
    )  # fmt: skip


def test_a_try_without_an_answer_starts_the_clock_and_is_repeated(cloud: Cloud) -> None:
    agent = cloud.asked()
    cloud.tell(UP, SILENT)
    assert (cloud.state(agent), cloud.states(agent, UP)) == ("booting", ["pending"])
    expires = cloud.rows.one("SELECT expires_at FROM claims")
    cloud.retry_now()
    (again,) = cloud.take(UP)
    assert again.row.provision is not None
    assert again.row.provision.code_until == expires


def test_a_repeat_is_the_same_event_with_the_same_code(cloud: Cloud) -> None:
    cloud.asked()
    (first,) = cloud.take(UP)
    cloud.record(first, SILENT)
    cloud.retry_now()
    (second,) = cloud.take(UP)
    assert second.row.request_id == first.row.request_id
    assert second.row.created_at == first.row.created_at
    assert cloud.code_in(second) == cloud.code_in(first)
    assert second.row.token > first.row.token


def test_the_pauses_between_tries_grow(cloud: Cloud) -> None:
    cloud.asked()
    pauses = []
    for _ in range(4):
        cloud.tell(UP, AWAY)
        pauses.append(
            float(cloud.rows.one("SELECT extract(epoch FROM retry_at - clock_timestamp())"
                                 " FROM event_deliveries"))
        )  # fmt: skip
        cloud.retry_now()
    assert all(0.4 * 2**n < pause <= 2**n for n, pause in enumerate(pauses))


def test_an_answer_erases_the_code_in_the_delivery(cloud: Cloud) -> None:
    agent = cloud.asked()
    assert cloud.deliveries(agent, UP)[0]["sealed_code"] is not None
    cloud.tell(UP, DONE)
    assert cloud.deliveries(agent, UP)[0]["sealed_code"] is None


def test_a_provision_that_every_target_refuses_fails_at_once_and_once(cloud: Cloud) -> None:
    job = cloud.rows.request(state="assigned", max_requeues=0)
    agent = cloud.asked(ONE, TWO, job=job)
    first, second = cloud.take(UP)
    cloud.record(first, REFUSED)
    assert cloud.state(agent) == "spawning"
    recorded = cloud.record(second, REFUSED)
    assert recorded is not None
    assert recorded.ended == (agent,)
    assert cloud.record(second, REFUSED) is None
    error = cloud.rows.get("scale_requests", job)["result"]["error"]
    assert error.startswith("its scale-up reached nobody: https://one.test/hook: refused")
    assert TWO in error
    assert cloud.rows.one("SELECT failure_streak FROM scaler_states") == 1
    assert cloud.rows.count("events", "type = 'scaler.failed'") == 1
    assert cloud.rows.count("outcomes", "failed") == 1
    assert cloud.deliveries(agent, DOWN) == []
    assert cloud.settle() == 1
    assert cloud.state(agent) is None


def test_one_target_that_took_it_is_enough(cloud: Cloud) -> None:
    agent = cloud.asked(ONE, TWO)
    first, second = cloud.take(UP)
    cloud.record(first, DONE)
    cloud.record(second, REFUSED)
    assert (cloud.state(agent), cloud.states(agent, UP)) == ("booting", ["done", "not-done"])
    cloud.end(agent)
    assert [row["target"] for row in cloud.deliveries(agent, DOWN)] == [ONE]


def test_a_scale_up_is_given_up_shortly_before_its_deadline_with_the_reason(cloud: Cloud) -> None:
    job = cloud.rows.request(state="assigned", max_requeues=0)
    agent = cloud.asked(job=job)
    cloud.rows.shift("spawns", agent, deadline_at=2.5)
    cloud.tell(UP, AWAY)
    assert cloud.states(agent, UP) == ["not-done"]
    assert cloud.deliveries(agent, UP)[0]["dead_letter"]
    assert "nobody listens" in cloud.rows.get("scale_requests", job)["result"]["error"]


def test_nothing_is_given_up_for_lateness_while_nobody_watches(cloud: Cloud) -> None:
    agent = cloud.asked()
    cloud.rows.shift("spawns", agent, deadline_at=2.5)
    cloud.rows.execute("UPDATE observation SET watched_at = clock_timestamp() - interval '1 min'")
    cloud.tell(UP, AWAY)
    assert cloud.states(agent, UP) == ["pending"]


def test_a_try_whose_worker_died_counts_as_one_that_may_have_worked(cloud: Cloud) -> None:
    agent = cloud.asked()
    (lost,) = cloud.take(UP)
    cloud.rows.execute("UPDATE event_deliveries SET lease_expires_at = clock_timestamp()"
                       " - interval '1 s'")  # fmt: skip
    other = Runtime(cloud.runtime.engine, "worker-2")
    assert cloud.take(UP, holder=other) == []
    assert cloud.state(agent) == "booting"
    cloud.retry_now()
    (again,) = cloud.take(UP, holder=other)
    assert cloud.record(lost, DONE) is None, "the token of the dead is worth nothing"
    assert cloud.states(agent, UP) == ["pending"]
    assert cloud.record(again, DONE) is not None


def test_a_worker_has_less_time_to_tell_than_its_lease_lasts(cloud: Cloud) -> None:
    cloud.window(lease_seconds=5, delivery_timeout_seconds=60)
    cloud.asked()
    (order,) = cloud.take(UP)
    assert 3 < order.give_up_at - time.monotonic() <= 4


def test_registration_calls_off_what_was_not_answered(cloud: Cloud) -> None:
    agent = cloud.asked(ONE, TWO)
    first, second = cloud.take(UP)
    cloud.record(first, DONE)
    cloud.record(second, AWAY)
    cloud.rows.gateway()
    token = "t" * 43
    cloud.rows.execute(
        "INSERT INTO agent_tokens (token_hash, agent_id, labels, expires_at) VALUES"
        " (sha256(CAST(:t AS bytea)), :a, ARRAY['linux'], clock_timestamp() + interval '1 h')",
        t=token, a=agent,
    )  # fmt: skip
    hello = register.Hello(agent, ("linux",), 1, token=token)
    welcome = register.register(cloud.runtime, "gw-1", hello)
    assert isinstance(welcome, register.Welcome), welcome
    assert cloud.states(agent, UP) == ["done", "not-done"]
    cloud.retry_now()
    assert cloud.take(UP) == []


def test_deliveries_that_arrived_are_counted_and_tries_are_not(cloud: Cloud) -> None:
    agent = cloud.asked(ONE, TWO)
    cloud.tell(UP, SILENT)
    cloud.retry_now()
    cloud.tell(UP, DONE)
    cloud.end(agent, DestroyReason.DRAIN)
    cloud.tell(DOWN, AWAY)
    cloud.retry_now()
    cloud.tell(DOWN, DONE)
    counted = cloud.rows.all("SELECT kind, reason, delivered FROM delivery_counts ORDER BY kind")
    assert [tuple(row) for row in counted] == [("scale-down", "drain", 2), ("scale-up", "", 2)]


def test_what_is_due_is_reminded_of_ever_less_often(cloud: Cloud) -> None:
    cloud.asked()
    cloud.rows.execute("UPDATE event_deliveries SET due_at = clock_timestamp()")
    with cloud.rows.begin() as connection:
        windows = settings.windows(connection)
        assert deliver.look_for_due(connection, windows, most=10) == {Step.START}
        assert deliver.look_for_due(connection, windows, most=10) == frozenset()
    pauses = []
    for _ in range(5):
        pauses.append(
            float(
                cloud.rows.one(
                    "SELECT extract(epoch FROM due_at - clock_timestamp()) FROM event_deliveries"
                )
            )
        )
        cloud.rows.execute("UPDATE event_deliveries SET due_at = clock_timestamp()")
        with cloud.rows.begin() as connection:
            deliver.look_for_due(connection, windows, most=10)
    assert pauses == sorted(pauses)
    assert 55 < pauses[-1] <= 60
