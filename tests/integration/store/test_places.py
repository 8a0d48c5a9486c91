"""Machines, standings of scalers, configuration revisions, live settings and tokens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import machines, retiring, revisions, scaler_states, settings, tokens
from kici_scaler.store.machines import MachineRow
from tests.support.rows import KIND, MACHINE, Rows, announcement

S = SpawnState


def _machines(rows: Rows) -> dict[tuple[str, str], MachineRow]:
    found = rows.call(machines.all_machines, fresh_seconds=30)
    return {(each.machine_id, each.backend_type): each for each in found}


def test_a_machine_is_what_its_worker_says_of_it(rows: Rows) -> None:
    rows.call(machines.announce, announcement(serves=("a", "b")))
    found = _machines(rows)[MACHINE, KIND]
    assert (found.os, found.arch, found.boot_id) == ("linux", "x64", "boot-1")
    assert (found.cpu_millis, found.memory_bytes) == (8000, 2**34)
    assert (found.state, found.serves, found.is_fresh, found.held_back) == (
        "up", ("a", "b"), True, False,
    )  # fmt: skip


def test_a_machine_has_a_row_for_each_kind_of_compute(rows: Rows) -> None:
    for kind in (KIND, "container"):
        rows.call(machines.announce, announcement(kind=kind))
    assert set(_machines(rows)) == {(MACHINE, KIND), (MACHINE, "container")}


@pytest.mark.parametrize(
    ("before", "after"), [("up", "up"), ("draining", "draining"), ("unreachable", "up")]
)
def test_a_machine_that_is_heard_of_again_is_up_unless_it_drains(
    rows: Rows, before: str, after: str
) -> None:
    rows.machine(state=before, boot_id="boot-0")
    rows.call(machines.announce, announcement(serves=None))
    assert _machines(rows)[MACHINE, KIND].state == after
    assert _machines(rows)[MACHINE, KIND].boot_id == "boot-1"
    rows.set("machines", MACHINE, state=before)
    assert rows.call(machines.heartbeat, MACHINE, KIND)
    assert _machines(rows)[MACHINE, KIND].state == after


@pytest.mark.parametrize(
    ("more", "is_news"),
    [({}, False), ({"boot_id": "boot-2"}, False), ({"arch": "arm64"}, True), ({"os": None}, True),
     ({"serves": ("a",)}, True), ({"machine": "m2"}, True), ({"kind": "container"}, True)],
)  # fmt: skip
def test_what_nothing_served_is_undecided_again_when_another_kind_of_machine_comes(
    rows: Rows, more: dict[str, Any], is_news: bool
) -> None:
    rows.call(machines.announce, announcement())
    nobody, mine = rows.request(routed_scaler=""), rows.request(routed_scaler="a")
    over = rows.request(state="refused", routed_scaler="")
    rows.call(machines.announce, announcement(**more))
    found = [rows.get("scale_requests", job)["routed_scaler"] for job in (nobody, mine, over)]
    assert found == [None if is_news else "", "a", ""]


def test_a_heartbeat_of_an_unknown_machine_asks_for_an_announcement(rows: Rows) -> None:
    rows.machine()
    assert not rows.call(machines.heartbeat, MACHINE, "container")


def test_a_machine_that_falls_silent_is_marked_once(rows: Rows) -> None:
    rows.machine()
    rows.machine("quiet")
    rows.machine("drains", state="draining")
    for name in ("quiet", "drains"):
        rows.shift("machines", name, last_heartbeat=-31.0)
    assert rows.call(machines.mark_unreachable, silent_seconds=30) == ["quiet"]
    assert rows.call(machines.mark_unreachable, silent_seconds=30) == []
    found = _machines(rows)
    assert [found[name, KIND].state for name in (MACHINE, "quiet", "drains")] == [
        "up", "unreachable", "draining",
    ]  # fmt: skip
    assert not found["drains", KIND].is_fresh


def test_a_machine_drains_in_all_its_kinds_and_comes_back(rows: Rows) -> None:
    for kind in (KIND, "container"):
        rows.machine(kind=kind)
    assert rows.call(machines.set_draining, MACHINE, True)
    assert {each.state for each in _machines(rows).values()} == {"draining"}
    assert rows.call(machines.set_draining, MACHINE, False)
    assert {each.state for each in _machines(rows).values()} == {"up"}
    assert not rows.call(machines.set_draining, "unknown", True)


def test_ending_a_drain_does_not_wake_what_does_not_answer(rows: Rows) -> None:
    rows.machine(state="unreachable")
    rows.call(machines.set_draining, MACHINE, False)
    assert _machines(rows)[MACHINE, KIND].state == "unreachable"


def test_foreign_use_holds_a_machine_back_for_a_while(rows: Rows) -> None:
    rows.machine()
    rows.machine(kind="container")
    rows.call(machines.hold_back, MACHINE, KIND, seconds=30, foreign_use={"pool": {"cpus": 3}})
    found = _machines(rows)
    assert (found[MACHINE, KIND].held_back, found[MACHINE, "container"].held_back) == (True, False)
    rows.execute("UPDATE machines SET not_before = now() - interval '1 s'")
    assert not _machines(rows)[MACHINE, KIND].held_back


def _fail(rows: Rows, *scalers: str) -> Any:
    rows.call(scaler_states.count_failures, scalers, base_seconds=30, max_seconds=900)
    return rows.call(scaler_states.all_states)


def test_failures_in_a_row_double_the_wait_up_to_its_ceiling(rows: Rows) -> None:
    waits = []
    for streak in range(1, 9):
        state = _fail(rows, "a")["a"]
        assert state.failure_streak == streak
        waits.append(round(state.backoff_seconds))
    assert waits == [30, 60, 120, 240, 480, 900, 900, 900]


def test_each_failure_is_counted_for_its_own_scaler(rows: Rows) -> None:
    states = _fail(rows, "a", "b", "a")
    assert (states["a"].failure_streak, states["b"].failure_streak) == (2, 1)
    assert round(states["a"].backoff_seconds) == 60


def test_thousands_of_failures_at_once_are_counted_too(rows: Rows) -> None:
    state = _fail(rows, *["a"] * 3000)["a"]
    assert (state.failure_streak, round(state.backoff_seconds)) == (3000, 900)


def test_failures_counted_at_the_same_moment_are_all_counted(rows: Rows) -> None:
    orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]] * 8
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda order: _fail(rows, *order), orders))
    states = rows.call(scaler_states.all_states)
    assert {name: states[name].failure_streak for name in "abc"} == dict.fromkeys("abc", 24)


def test_a_registration_clears_the_streak_and_writes_only_then(rows: Rows) -> None:
    _fail(rows, "a", "b")
    rows.call(scaler_states.clear_failures, "a")
    states = rows.call(scaler_states.all_states)
    assert (states["a"].failure_streak, states["a"].backoff_seconds) == (0, 0)
    assert states["b"].failure_streak == 1
    changed = rows.one("SELECT changed_at FROM scaler_states WHERE scaler = 'a'")
    rows.call(scaler_states.clear_failures, "a")
    assert rows.one("SELECT changed_at FROM scaler_states WHERE scaler = 'a'") == changed


def test_a_wait_that_is_over_is_none(rows: Rows) -> None:
    _fail(rows, "a")
    rows.execute("UPDATE scaler_states SET backoff_until = now() - interval '1 s'")
    state = rows.call(scaler_states.all_states)["a"]
    assert (state.backoff_seconds, state.failure_streak) == (0, 1)


def test_a_scaler_that_left_retires_until_its_last_agent_is_gone(rows: Rows) -> None:
    revision = rows.revision()
    rows.call(retiring.retire, ["local", "empty"], revision_id=revision)
    agent = rows.spawn(S.BUSY, job=rows.request(state="running"))
    assert rows.call(retiring.all_retiring) == {"local": revision, "empty": revision}
    assert rows.call(retiring.forget_gone) == ["empty"]
    rows.execute("DELETE FROM spawns WHERE agent_id = :agent", agent=agent)
    assert rows.call(retiring.forget_gone) == ["local"]


def test_a_retiring_scaler_that_is_back_is_taken_back(rows: Rows) -> None:
    rows.call(retiring.retire, ["a"], revision_id=rows.revision())
    _fail(rows, "b")
    assert rows.call(retiring.take_back, ["a", "b"]) == ["a"]
    assert rows.call(retiring.all_retiring) == {}


def test_only_what_nothing_is_lost_with_is_needless(rows: Rows) -> None:
    waiting = rows.request(state="assigned", may_wait=False)
    expected = {
        rows.spawn(): (S.RESERVED, None, True),
        rows.spawn(job=waiting): (S.RESERVED, waiting, False),
        rows.spawn(S.SPAWNING): (S.SPAWNING, None, True),
        rows.spawn(S.BOOTING): (S.BOOTING, None, True),
        rows.spawn(S.IDLE): (S.IDLE, None, True),
    }
    for state in (S.SPAWNING, S.BOOTING, S.BUSY, S.DESTROYING):
        rows.spawn(state, job=rows.request(state="running"))
    rows.spawn(S.IDLE, job=rows.request(state="assigned"))
    rows.spawn(S.DESTROYING)
    rows.spawn(scaler="other")
    found = rows.call(retiring.lock_needless, ["local"])
    assert {each.agent_id: (each.state, each.job_id, each.may_wait) for each in found} == expected


def test_live_spawns_of_a_scaler_are_counted_by_state(rows: Rows) -> None:
    rows.spawn()
    rows.spawn()
    rows.spawn(S.DESTROYING)
    rows.spawn(scaler="other")
    counts = rows.call(retiring.live_counts, ["local", "none"])
    assert counts == {"local": {S.RESERVED: 2, S.DESTROYING: 1}}


def test_a_retiring_scaler_without_agents_has_none_of_it_left(rows: Rows) -> None:
    revision = rows.revision()
    rows.call(retiring.retire, ["local", "empty"], revision_id=revision)
    rows.spawn(S.QUARANTINED)
    assert rows.call(retiring.with_agents) == {"local": revision}


def _activate(rows: Rows, digest: str) -> int:
    return int(
        rows.call(
            revisions.activate, document={"d": digest}, digest=digest, source="f", author="me"
        )
    )


def test_exactly_one_revision_is_active_and_the_others_stay_readable(rows: Rows) -> None:
    assert rows.call(revisions.active_id) is None
    assert rows.call(revisions.active_digest) is None
    first, second = _activate(rows, "1"), _activate(rows, "2")
    assert rows.call(revisions.active_id) == second
    assert rows.call(revisions.active_digest) == "2"
    assert rows.call(revisions.document, first) == {"d": "1"}
    assert [(each.id, each.active) for each in rows.call(revisions.history)] == [
        (second, True),
        (first, False),
    ]
    assert len(rows.call(revisions.history, 1)) == 1


def test_two_activations_at_once_leave_one_active(rows: Rows) -> None:
    """Without the admission section around them one of the two may fail; none corrupts."""

    def activate(number: int) -> bool:
        try:
            _activate(rows, str(number))
        except IntegrityError:
            return False
        return True

    _activate(rows, "0")
    with ThreadPoolExecutor(6) as pool:
        assert any(pool.map(activate, range(6)))
    assert rows.count("config_revisions", "active") == 1


def test_a_new_revision_makes_every_waiting_request_undecided_again(rows: Rows) -> None:
    waiting = rows.request(routed_scaler="a")
    assigned = rows.request(state="assigned", routed_scaler="a")
    _activate(rows, "1")
    assert rows.get("scale_requests", waiting)["routed_scaler"] is None
    assert rows.get("scale_requests", assigned)["routed_scaler"] == "a"


def test_a_setting_stands_over_the_default_until_it_is_reset(rows: Rows) -> None:
    default = rows.call(settings.windows).lease_seconds
    rows.call(settings.put, "lease_seconds", 12, changed_by="me")
    rows.call(settings.put, "lease_seconds", 13.5, changed_by="me")
    assert rows.call(settings.windows).lease_seconds == 13.5
    assert rows.call(settings.reset, "lease_seconds")
    assert not rows.call(settings.reset, "lease_seconds")
    assert rows.call(settings.windows).lease_seconds == default


def test_organisations_have_spawn_timeouts_of_their_own(rows: Rows) -> None:
    for scope, value in (("acme", 60), ("quick", 0), ("slow", 9_999), ("odd", "soon")):
        rows.call(settings.put, "spawn_timeout_seconds", value, changed_by="me", scope=scope)
    rows.call(settings.put, "lease_seconds", 5, changed_by="me", scope="acme")
    assert rows.call(settings.live).spawn_timeouts == {"acme": 60, "quick": 1, "slow": 900}
    assert rows.call(settings.windows).spawn_timeout_seconds == 300


@pytest.mark.parametrize(
    ("stored", "drains"), [(None, False), (True, True), (False, False), ("true", False)]
)
def test_the_cluster_drains_only_when_it_was_told_to(
    rows: Rows, stored: object, drains: bool
) -> None:
    if stored is not None:
        rows.call(settings.put, "draining", stored, changed_by="me")
    assert rows.call(settings.is_draining) is drains


def test_a_token_is_good_for_its_agent_and_labels_and_only_its_hash_is_stored(rows: Rows) -> None:
    token = tokens.mint("a", ("linux", "gpu"))
    rows.call(tokens.store, [token], ttl_seconds=60)
    assert rows.call(tokens.labels_of, agent_id="a", secret=token.secret) == ("linux", "gpu")
    assert rows.call(tokens.labels_of, agent_id="b", secret=token.secret) is None
    assert rows.call(tokens.labels_of, agent_id="a", secret=token.secret + "x") is None
    assert token.secret not in repr(token)
    assert token.secret not in str(rows.all("SELECT * FROM agent_tokens"))


def test_a_token_is_worthless_past_its_end_and_after_it_was_revoked(rows: Rows) -> None:
    expired, revoked, good = (tokens.mint(name, ()) for name in "abc")
    rows.call(tokens.store, [expired], ttl_seconds=-1)
    rows.call(tokens.store, [revoked, good], ttl_seconds=60)
    rows.call(tokens.revoke, ["b"])
    found = [
        rows.call(tokens.labels_of, agent_id=each.agent_id, secret=each.secret)
        for each in (expired, revoked, good)
    ]
    assert found == [None, None, ()]
    assert rows.call(tokens.purge_expired) == 1
    assert rows.count("agent_tokens") == 1


def test_no_two_tokens_are_alike() -> None:
    minted = {tokens.mint("a", ()).secret for _ in range(500)}
    assert len(minted) == 500
    assert min(len(secret) for secret in minted) >= 43
