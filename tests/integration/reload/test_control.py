"""Pausing, emptying and resuming scalers and machines; live settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kici_scaler.domain import knobs
from kici_scaler.domain.request import Result
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.errors import Conflict, NotFound
from kici_scaler.service import live_settings, machine_life, operations, scaler_control, status
from kici_scaler.service.live_settings import BadSetting, Source
from kici_scaler.store import audit, scaler_states, settings
from kici_scaler.store.engine import Contended
from kici_scaler.store.machines import Announcement
from tests.integration.reload.yard import Yard, scaler
from tests.support.rows import KIND, MACHINE

S = SpawnState
ACTIONS = (scaler_control.pause, scaler_control.drain, scaler_control.resume)
HERE = Announcement(MACHINE, KIND, "boot-1", "linux", "x64", 8000, 2**34)


@pytest.fixture
def yard(yard: Yard) -> Yard:
    yard.reload(scaler("local", "linux"), scaler("other", "linux", "more"))
    return yard


def _audited(yard: Yard) -> list[tuple[str, str, str]]:
    rows = yard.rows.call(audit.recent)
    return [(row.actor, row.action, row.subject) for row in rows if row.action != "reload"]


def test_a_paused_scaler_takes_nothing_new_and_keeps_what_it_has(yard: Yard) -> None:
    kept = yard.ask("linux").job_id
    scaler_control.pause(yard.runtime, "local", actor="me", reason="new driver")
    assert yard.ask("linux").scaler == "other"
    assert yard.spawns()[yard.holders(kept)[0]]["scaler"] == "local"
    (found, _) = status.read(yard.runtime).scalers
    assert found.restraint == "scaler `local` is paused: new driver"
    scaler_control.resume(yard.runtime, "local", actor="me")
    assert yard.ask("linux").scaler == "local"
    assert _audited(yard) == [("me", "scaler", "local")] * 2


def test_a_drained_scaler_is_emptied_but_for_its_jobs(yard: Yard) -> None:
    yard.ask("linux")
    (busy,) = yard.start()
    yard.connect(busy)
    assert yard.accept(busy)
    job = yard.ask("linux").job_id
    idle, booting = yard.rows.spawn(S.IDLE), yard.rows.spawn(S.BOOTING)
    scaler_control.drain(yard.runtime, "local", actor="me")
    states = {agent: row["state"] for agent, row in yard.spawns().items()}
    assert states[busy] == "busy"
    assert states[idle] == states[booting] == "destroying"
    assert yard.rows.get("scale_requests", job)["state"] == "waiting"
    yard.ask("linux")
    assert yard.spawns()[yard.holders(job)[0]]["scaler"] == "other"


def test_resuming_forgets_failures(yard: Yard) -> None:
    yard.rows.call(scaler_states.count_failures, ["local"], base_seconds=300, max_seconds=900)
    assert yard.ask("linux").result is Result.SKIPPED
    scaler_control.resume(yard.runtime, "local", actor="me")
    assert yard.ask("linux").result is Result.SPAWNING


@pytest.mark.parametrize("action", ACTIONS)
def test_what_there_is_not_cannot_be_paused(yard: Yard, action: Callable[..., None]) -> None:
    before = yard.dump()
    with pytest.raises(NotFound, match="nobody"):
        action(yard.runtime, "nobody", actor="me")
    assert yard.dump() == before


@pytest.mark.parametrize("action", ACTIONS)
def test_a_retiring_scaler_takes_nothing_new_already(
    yard: Yard, action: Callable[..., None]
) -> None:
    yard.ask("linux")
    yard.start()
    yard.reload(scaler("other", "linux", "more"))
    with pytest.raises(Conflict, match="left the configuration"):
        action(yard.runtime, "local", actor="me")


def test_a_draining_machine_gives_back_what_has_not_begun(yard: Yard) -> None:
    job = yard.ask("linux").job_id
    operations.set_machine_draining(yard.runtime, MACHINE, True, actor="me")
    assert yard.spawns() == {}
    assert yard.ask("linux").result is Result.AT_CAPACITY
    operations.set_machine_draining(yard.runtime, MACHINE, False, actor="me")
    yard.ask("linux")
    assert len(yard.holders(job)) == 1
    assert _audited(yard) == [("me", "machine-drain", MACHINE)] * 2
    with pytest.raises(NotFound, match="nowhere"):
        operations.set_machine_draining(yard.runtime, "nowhere", True, actor="me")


def test_a_scaler_that_a_machine_cannot_run_goes_elsewhere_until_it_can(yard: Yard) -> None:
    yard.rows.machine("m2")
    for _ in range(4):
        yard.ask("linux")
    machine_life.report(yard.runtime, HERE, {"local": "no such program"})
    assert not yard.unaccounted()
    yard.ask("linux")
    assert {row["machine_id"] for row in yard.spawns().values()} == {"m2"}
    local, _ = status.read(yard.runtime).scalers
    assert (local.degraded, local.machines_up, local.restraint) == (
        {MACHINE: "no such program"}, 1, "",
    )  # fmt: skip
    machine_life.report(yard.runtime, HERE, {})
    for _ in range(8):
        yard.ask("linux")
    assert {row["machine_id"] for row in yard.spawns().values()} == {MACHINE, "m2"}


def test_a_scaler_that_no_machine_can_run_says_why_to_whoever_waits(yard: Yard) -> None:
    yard.reload(scaler("local", "linux"))
    machine_life.report(yard.runtime, HERE, {"local": "no such program", "other": "neither"})
    answer = yard.ask("linux")
    assert answer.result is Result.AT_CAPACITY
    assert answer.reason == "scaler `local`: machine `m1` cannot run it: no such program"
    (found,) = status.read(yard.runtime).scalers
    assert found.restraint == answer.reason


def test_a_report_says_only_what_changed(yard: Yard) -> None:
    for _ in range(2):
        machine_life.report(yard.runtime, HERE, {"local": "broken"})
    first = yard.rows.one("SELECT xmin::text FROM machine_scalers")
    machine_life.report(yard.runtime, HERE, {"local": "broken"})
    assert yard.rows.one("SELECT xmin::text FROM machine_scalers") == first
    yard.rows.execute("DELETE FROM machines")
    machine_life.report(yard.runtime, HERE, {"local": "broken"})
    assert yard.rows.count("machine_scalers") == 0
    machine_life.beat(yard.runtime, HERE, tokens=(), degraded={"local": "broken"})
    assert yard.rows.count("machine_scalers") == 1


def test_a_setting_counts_from_its_change_to_its_reset(yard: Yard) -> None:
    changed = live_settings.change(yard.runtime, "offer_timeout_seconds", 12, actor="me")
    assert (changed.value, changed.source, changed.changed_by) == (12, Source.CLUSTER, "me")
    assert yard.rows.call(settings.windows).offer_timeout_seconds == 12
    back = live_settings.reset(yard.runtime, "offer_timeout_seconds", actor="you")
    assert (back.value, back.source, back.changed_by) == (30, Source.DEFAULT, None)
    assert _audited(yard) == [
        ("you", "setting-reset", "offer_timeout_seconds"),
        ("me", "setting", "offer_timeout_seconds"),
    ]


def test_a_name_of_the_reference_takes_milliseconds(yard: Yard) -> None:
    live_settings.change(yard.runtime, "scaler_spawn_timeout_ms", 60_000, actor="me")
    assert live_settings.get(yard.runtime, "spawn_timeout_seconds").value == 60


def test_an_organisation_has_its_own_value_over_the_clusters(yard: Yard) -> None:
    live_settings.change(yard.runtime, "spawn_timeout_seconds", 100, actor="me")
    live_settings.change(yard.runtime, "spawn_timeout_seconds", 50, actor="me", org="acme")
    found = [live_settings.get(yard.runtime, "spawn_timeout_seconds", org) for org in
             (None, "acme", "else")]  # fmt: skip
    assert [(each.value, each.source) for each in found] == [
        (100, Source.CLUSTER), (50, Source.ORGANISATION), (100, Source.CLUSTER),
    ]  # fmt: skip
    yard.ask("linux", org="acme")
    (row,) = yard.spawns().values()
    assert row["spawn_timeout_seconds"] == 50


@pytest.mark.parametrize(
    ("name", "value", "org", "error"),
    [
        ("spawn_timeout_seconds", 901, None, BadSetting),
        ("spawn_timeout_seconds", 0.5, "acme", BadSetting),
        ("spawn_timeout_seconds", float("nan"), None, BadSetting),
        ("failure_limit", 2.5, None, BadSetting),
        ("backoff_max_seconds", 20, None, BadSetting),
        ("flap_grace_seconds", 29, None, BadSetting),
        ("lease_seconds", 20, "acme", BadSetting),
        ("no_such_setting", 1, None, NotFound),
    ],
)
def test_a_value_that_may_not_be_changes_nothing(
    yard: Yard, name: str, value: float, org: str | None, error: type[Exception]
) -> None:
    before = yard.dump()
    with pytest.raises(error):
        live_settings.change(yard.runtime, name, value, actor="me", org=org)
    assert yard.dump() == before


def test_a_reset_that_would_contradict_another_value_changes_nothing(yard: Yard) -> None:
    live_settings.change(yard.runtime, "backoff_max_seconds", 3_000, actor="me")
    live_settings.change(yard.runtime, "backoff_base_seconds", 2_000, actor="me")
    before = yard.dump()
    with pytest.raises(BadSetting):
        live_settings.reset(yard.runtime, "backoff_max_seconds", actor="me")
    assert yard.dump() == before


def test_two_changes_at_once_never_contradict_each_other(yard: Yard) -> None:
    """Each is allowed by itself: the base over the old maximum's half, the maximum under it."""
    together = threading.Barrier(2)

    def change(name: str, value: float) -> bool:
        together.wait(60)
        while True:
            try:
                live_settings.change(yard.runtime, name, value, actor="me")
            except BadSetting:
                return False
            except Contended:  # a slow machine; its caller is told to repeat
                continue
            return True

    for _ in range(10):
        for name in ("backoff_max_seconds", "backoff_base_seconds"):
            yard.rows.call(settings.reset, name)
        with ThreadPoolExecutor(2) as pool:
            done = [
                pool.submit(change, "backoff_base_seconds", 800),
                pool.submit(change, "backoff_max_seconds", 400),
            ]
            assert sum(each.result(60) for each in done) == 1
        stored = {each.knob.key: each.value for each in live_settings.all_settings(yard.runtime)}
        assert not list(knobs.contradictions(stored))
