"""Reservations: rows that describe themselves, and one read of all they hold."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError

from kici_scaler.domain.limits import Held
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import spawns
from kici_scaler.store.bulk import plain
from tests.support.rows import Rows, new_spawn

S = SpawnState


def test_a_reservation_says_all_that_a_later_actor_needs(rows: Rows) -> None:
    job, revision = rows.request(state="assigned"), rows.revision()
    spawn = new_spawn(
        job,
        revision=revision,
        pool="p",
        gate=("arm64",),
        targets=("https://example.test/hook",),
        limit_cpu_millis=2000,
        limit_memory_bytes=2**40,
        org="acme",
        label_set_index=2,
        spawn_slots=4,
        spawn_timeout_seconds=12.5,
    )
    assert rows.call(spawns.insert, [spawn], hint_after=5.0) == {spawn.agent_id}
    row = rows.get("spawns", spawn.agent_id)
    said = spawn._asdict() | plain(spawn.blueprint)
    for name in (
        "scaler", "backend_type", "revision_id", "label_set_index", "machine_id", "pool", "warm",
        "spawn_slots", "spawn_timeout_seconds", "cpu_millis", "memory_bytes", "limit_cpu_millis",
        "limit_memory_bytes", "job_id", "run_id", "org", "owner",
    ):  # fmt: skip
        assert row[name] == said[name], name
    for name in ("label_set", "agent_labels", "gate", "roles", "targets"):
        assert row[name] == list(getattr(spawn.blueprint, name)), name
    assert row["state"] == "reserved"
    assert rows.count("spawns", "due_at BETWEEN now() AND now() + interval '5 s'") == 1


def test_each_spawn_of_a_batch_gets_what_is_its_own_in_the_order_given(rows: Rows) -> None:
    revision = rows.revision()
    batch = [
        new_spawn(rows.request(), revision=revision)._replace(
            run_id=run,
            org=org,
            cpu_millis=number,
            limit_memory_bytes=None if number % 2 else 2**40 + number,
            spawn_timeout_seconds=1.5 + number,
        )
        for number, (run, org) in enumerate(
            [("a,b", None), ('{"c"}', "null"), ("NULL", 'o\\"'), ("d", None), ("", "o")]
        )
    ]
    assert len(rows.call(spawns.insert, batch, hint_after=5)) == len(batch)
    for spawn in batch:
        row = rows.get("spawns", spawn.agent_id)
        said = {**spawn._asdict(), **plain(spawn.blueprint)}
        for name in ("job_id", "run_id", "org", "cpu_millis", "limit_memory_bytes", "scaler"):
            assert row[name] == said[name], name
        assert row["spawn_timeout_seconds"] == spawn.spawn_timeout_seconds
    stored = sorted(batch, key=lambda each: rows.get("spawns", each.agent_id)["reserved_at"])
    assert stored == batch


def test_a_request_that_gets_an_agent_names_its_scaler_and_waits_for_nothing(rows: Rows) -> None:
    job = rows.request(wait_code="at-capacity", wait_reason="full", routed_scaler="b")
    over, other = rows.request(state="cancelled"), rows.request()
    revision = rows.revision()
    batch = [new_spawn(each, revision=revision) for each in (job, over, None)]
    rows.call(spawns.insert, batch, hint_after=5)
    row = rows.get("scale_requests", job)
    assert (row["state"], row["routed_scaler"]) == ("assigned", batch[0].blueprint.scaler)
    assert (row["wait_code"], row["wait_reason"]) == ("undecided", "")
    assert row["decided_at"] is not None
    assert rows.get("scale_requests", over)["state"] == "cancelled"
    assert rows.get("scale_requests", other)["state"] == "waiting"


def test_a_batch_of_none_stores_nothing(rows: Rows) -> None:
    assert rows.call(spawns.insert, [], hint_after=5) == frozenset()
    assert rows.count("spawns") == 0


def test_a_taken_id_is_left_out_for_another_to_be_picked(rows: Rows) -> None:
    revision = rows.revision()
    first = new_spawn(revision=revision)
    second, third = (new_spawn(rows.request(), revision=revision) for _ in range(2))
    rows.call(spawns.insert, [first], hint_after=5)
    clash = new_spawn(rows.request(), revision=revision, agent_id=first.agent_id)
    assert rows.call(spawns.insert, [second, clash, third], hint_after=5) == {
        second.agent_id,
        third.agent_id,
    }
    assert rows.get("spawns", first.agent_id)["warm"]
    assert rows.get("scale_requests", str(clash.job_id))["state"] == "waiting"


def test_a_second_live_spawn_for_a_job_stores_nothing_of_its_batch(rows: Rows) -> None:
    job, revision = rows.request(state="assigned"), rows.revision()
    rows.call(spawns.insert, [new_spawn(job, revision=revision)], hint_after=5)
    batch = [new_spawn(revision=revision), new_spawn(job, revision=revision)]
    with pytest.raises(IntegrityError, match="spawns_one_per_job"):
        rows.call(spawns.insert, batch, hint_after=5)
    assert rows.count("spawns") == 1


def test_usage_counts_every_live_row_whatever_its_state(rows: Rows) -> None:
    for state in S:
        rows.spawn(state, job=rows.request(state="running"), pool="p", cpu_millis=10)
    rows.spawn(scaler="b", machine_id="m2", memory_bytes=2**50)
    rows.spawn(scaler="b", machine_id="m2", memory_bytes=2**50)
    rows.spawn(scaler="cloud", machine_id=None, backend_type="event")
    assert sorted(rows.call(spawns.usage), key=lambda each: each.scaler) == [
        Held("b", "m2", None, 2, 2000, 2**51),
        Held("cloud", None, None, 1, 1000, 1024),
        Held("local", "m1", "p", len(S), 10 * len(S), 1024 * len(S)),
    ]


def test_nothing_lives_nothing_is_held(rows: Rows) -> None:
    assert rows.call(spawns.usage) == []


def test_live_spawns_are_listed_the_oldest_first_with_who_sees_them(rows: Rows) -> None:
    rows.gateway()
    seen, unseen = rows.spawn(S.IDLE), rows.spawn(S.IDLE)
    rows.shift("spawns", unseen, reserved_at=-60.0)
    rows.agent(seen)
    rows.agent(unseen, gateway=None)
    first, second = rows.call(spawns.live)
    assert (first.agent_id, second.agent_id) == (unseen, seen)
    assert (first.gateway, second.gateway) == (None, "gw-1")
    assert first.unseen_since is not None
    assert second.unseen_since is None
    assert len(rows.call(spawns.live, limit=1)) == 1


def test_spawns_are_found_by_agent(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING)
    found = rows.call(spawns.find, [agent, "unknown"])
    assert set(found) == {agent}
    assert (found[agent].state, found[agent].label_set) == (S.BOOTING, ("linux",))


def test_counts_are_kept_apart_by_scaler_and_state(rows: Rows) -> None:
    rows.spawn()
    rows.spawn()
    rows.spawn(S.BOOTING, scaler="b")
    assert rows.call(spawns.counts_by_state) == {("local", "reserved"): 2, ("b", "booting"): 1}
