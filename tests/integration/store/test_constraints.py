"""States that must not exist cannot be written, whatever code tries."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from kici_scaler.domain.spawn import SpawnState
from tests.support.rows import ENVELOPE, Rows

S = SpawnState
Attempt = Callable[[Rows], Any]


def _two_active(rows: Rows) -> None:
    rows.revision(active=True)
    rows.revision(active=True)


def _second_live_spawn(state: SpawnState) -> Attempt:
    def attempt(rows: Rows) -> None:
        job = rows.request(state="running")
        rows.spawn(S.BUSY, job=job)
        rows.spawn(state, job=job)

    return attempt


def _duplicate(table: str, first: str) -> Attempt:
    def attempt(rows: Rows) -> None:
        rows.execute(first)
        rows.execute(first)

    return attempt


def _api_key(
    rows: Rows, byte: str, *, key: str = "1", name: str = "a", scope: str = "agent", size: int = 32
) -> int:
    return rows.execute(
        "INSERT INTO api_keys (id, name, scope, secret_hash, created_by)"
        " VALUES (:key, :name, :scope, decode(repeat(:byte, :size), 'hex'), 'me')",
        key=key,
        name=name,
        scope=scope,
        byte=byte,
        size=size,
    )


def _held_by_static(rows: Rows, *, state: str = "assigned", agent: str = "static-1") -> str:
    return rows.request(
        state=state, static_agent=agent, static_deadline_at="infinity", static_due_at="infinity"
    )


def _seen_by_nobody(rows: Rows) -> None:
    agent = rows.agent(rows.spawn(S.IDLE), gateway=None)
    rows.set("agents", agent, unseen_since=None)


def _over_but_holding(column: str) -> Attempt:
    return lambda rows: rows.request(state="succeeded", **{column: "{}"})


ATTEMPTS: dict[str, Attempt] = {
    "config_revisions_one_active": _two_active,
    "scaler_states_standing_check": lambda rows: rows.execute(
        "INSERT INTO scaler_states (scaler, standing) VALUES ('a', 'asleep')"
    ),
    "scaler_states_failure_streak_check": lambda rows: rows.execute(
        "INSERT INTO scaler_states (scaler, failure_streak) VALUES ('a', -1)"
    ),
    "scaler_states_revision_id_fkey": lambda rows: rows.execute(
        "INSERT INTO scaler_states (scaler, revision_id) VALUES ('a', 999)"
    ),
    "scaler_states_pkey": _duplicate(
        "scaler_states", "INSERT INTO scaler_states (scaler) VALUES ('a')"
    ),
    "settings_pkey": _duplicate(
        "settings", "INSERT INTO settings (key, value, changed_by) VALUES ('k', '1', 'me')"
    ),
    "duties_pkey": _duplicate(
        "duties", "INSERT INTO duties (duty, ticked_at) VALUES ('sweep', now())"
    ),
    "observation_single_check": lambda rows: rows.execute(
        "INSERT INTO observation (single, watched_at, grace_until) VALUES (false, now(), now())"
    ),
    "observation_pkey": _duplicate(
        "observation", "INSERT INTO observation (watched_at, grace_until) VALUES (now(), now())"
    ),
    "machines_state_check": lambda rows: rows.machine(state="asleep"),
    "machines_cpu_millis_check": lambda rows: rows.machine(cpu_millis=-1),
    "machines_memory_bytes_check": lambda rows: rows.machine(memory_bytes=-1),
    "machines_driver": lambda rows: rows.machine(driver="a worker"),
    "machines_target": lambda rows: rows.machine(address="10.0.0.1"),
    "machines_pkey": lambda rows: (rows.machine(), rows.machine()),
    "gateways_pkey": lambda rows: (rows.gateway(), rows.gateway()),
    "scale_requests_pkey": lambda rows: (rows.request("job"), rows.request("job")),
    "scale_requests_state_check": lambda rows: rows.request(state="asleep"),
    "scale_requests_max_requeues_check": lambda rows: rows.request(max_requeues=-1),
    "scale_requests_static_is_whole": lambda rows: rows.request(
        state="assigned", static_agent="static-1"
    ),
    "scale_requests_static_has_job": lambda rows: _held_by_static(rows, state="waiting"),
    "scale_requests_one_per_static_agent": lambda rows: (
        _held_by_static(rows),
        _held_by_static(rows, state="running"),
    ),
    "agents_static_only": lambda rows: (
        rows.gateway(),
        rows.agent(rows.spawn(S.IDLE), stopping="job"),
    ),
    "spawns_pkey": lambda rows: (rows.spawn(agent="a"), rows.spawn(agent="a")),
    "spawns_state_check": lambda rows: rows.set("spawns", rows.spawn(), state="asleep"),
    "spawns_revision_id_fkey": lambda rows: rows.spawn(revision_id=999),
    "spawns_job_id_fkey": lambda rows: rows.spawn(job="unknown"),
    "spawns_spawn_slots_check": lambda rows: rows.spawn(spawn_slots=0),
    "spawns_spawn_timeout_seconds_check": lambda rows: rows.spawn(spawn_timeout_seconds=0),
    "spawns_cpu_millis_check": lambda rows: rows.spawn(cpu_millis=-1),
    "spawns_memory_bytes_check": lambda rows: rows.spawn(memory_bytes=-1),
    "spawns_local_has_machine": lambda rows: rows.spawn(machine_id=None),
    "spawns_busy_has_job": lambda rows: rows.spawn(S.BUSY),
    "spawns_lease_is_whole": lambda rows: rows.set("spawns", rows.spawn(), lease_holder="me"),
    "spawns_reserved_is_untouched": lambda rows: rows.spawn(backend_ref='{"pid": 1}'),
    "spawns_ending_has_reason": lambda rows: rows.set(
        "spawns", rows.spawn(S.DESTROYING), destroy_reason=None
    ),
    "spawns_every_state_is_due": lambda rows: rows.spawn(due=None),
    "spawns_one_per_job": _second_live_spawn(S.RESERVED),
    "agents_pkey": lambda rows: (
        rows.gateway(),
        rows.agent(rows.spawn(S.IDLE, agent="a")),
        rows.agent("a", spawn_id=None),
    ),
    "agents_spawn_id_key": lambda rows: (
        rows.gateway(),
        rows.agent(rows.spawn(S.IDLE, agent="a")),
        rows.agent("b", spawn_id="a"),
    ),
    "agents_spawn_id_fkey": lambda rows: (rows.gateway(), rows.agent("nobody")),
    "agents_gateway_fkey": lambda rows: rows.agent(rows.spawn(S.IDLE), gateway="unknown"),
    "agents_connection_number_check": lambda rows: (
        rows.gateway(),
        rows.agent(rows.spawn(S.IDLE), number=0),
    ),
    "agents_seen_has_gateway": _seen_by_nobody,
    "agent_tokens_pkey": _duplicate(
        "agent_tokens",
        "INSERT INTO agent_tokens VALUES (decode(repeat('00', 32), 'hex'), 'a', '{}', now())",
    ),
    "agent_tokens_token_hash_check": lambda rows: rows.execute(
        "INSERT INTO agent_tokens VALUES (decode('00', 'hex'), 'a', '{}', now())"
    ),
    "api_keys_pkey": lambda rows: (_api_key(rows, "01"), _api_key(rows, "02", name="b")),
    "api_keys_one_live_name": lambda rows: (_api_key(rows, "01"), _api_key(rows, "02", key="2")),
    "api_keys_secret_hash_key": lambda rows: (
        _api_key(rows, "01"),
        _api_key(rows, "01", key="2", name="b"),
    ),
    "api_keys_secret_hash_check": lambda rows: _api_key(rows, "01", size=31),
    "api_keys_scope_check": lambda rows: _api_key(rows, "01", scope="everything"),
    "outcomes_pkey": _duplicate(
        "outcomes",
        "INSERT INTO outcomes (agent_id, scaler, backend_type) VALUES ('a', 's', 'event')",
    ),
}
"""By the name of the constraint, what it must refuse."""

MORE: dict[str, tuple[str, Attempt]] = {
    "an event spawn on a machine": (
        "spawns_local_has_machine",
        lambda rows: rows.spawn(backend_type="event"),
    ),
    "busy since no time": (
        "spawns_busy_has_job",
        lambda rows: rows.set("spawns", rows.busy()[0], busy_at=None),
    ),
    "a lease without a token": (
        "spawns_lease_is_whole",
        lambda rows: rows.execute(
            "UPDATE spawns SET lease_holder = 'me', lease_expires_at = now()"
            " WHERE agent_id = :agent",
            agent=rows.spawn(),
        ),
    ),
    "reserved, and already started": (
        "spawns_reserved_is_untouched",
        lambda rows: rows.execute(
            "UPDATE spawns SET spawning_at = now() WHERE agent_id = :agent", agent=rows.spawn()
        ),
    ),
    "a reason to destroy on a live agent": (
        "spawns_ending_has_reason",
        lambda rows: rows.execute(
            "UPDATE spawns SET destroy_reason = 'idle', destroying_at = now()"
            " WHERE agent_id = :agent",
            agent=rows.spawn(S.IDLE),
        ),
    ),
    "offered a job, and never looked at": (
        "spawns_every_state_is_due",
        lambda rows: rows.spawn(S.IDLE, job=rows.request(state="assigned"), due=None),
    ),
    **{
        f"over, and still holding its {column}": (
            "scale_requests_over_is_erased",
            _over_but_holding(column),
        )
        for column in ("sealed_payload", "sealed_registry")
    },
    "over since no time": (
        "scale_requests_over_is_erased",
        lambda rows: rows.set("scale_requests", rows.request(state="failed"), finished_at=None),
    ),
    **{
        f"a second live spawn, {state}": ("spawns_one_per_job", _second_live_spawn(state))
        for state in (S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY)
    },
}


@pytest.mark.parametrize("constraint", ATTEMPTS)
def test_the_constraint_refuses(rows: Rows, constraint: str) -> None:
    with pytest.raises(IntegrityError, match=re.escape(constraint)):
        ATTEMPTS[constraint](rows)


@pytest.mark.parametrize("what", MORE)
def test_it_cannot_be_written(rows: Rows, what: str) -> None:
    constraint, attempt = MORE[what]
    with pytest.raises(IntegrityError, match=re.escape(constraint)):
        attempt(rows)


HELD = (
    "config_revisions", "scaler_states", "settings", "duties", "observation", "audit", "machines",
    "gateways", "scale_requests", "spawns", "agents", "agent_tokens", "outcomes", "events",
    "api_keys",
)  # fmt: skip
"""The tables whose every constraint has an attempt here; a new table belongs among them."""

CONSTRAINTS = """
    SELECT conname FROM pg_constraint
    WHERE contype IN ('c', 'f', 'p', 'u') AND conrelid::regclass::text = ANY(:tables)
    UNION
    SELECT indexrelid::regclass::text FROM pg_index
    WHERE indisunique AND indrelid::regclass::text = ANY(:tables)
"""

BY_CONSTRUCTION = {
    "config_revisions_pkey", "events_pkey", "audit_pkey", "scale_requests_by_spawn_key",
}  # fmt: skip
"""Keys that the database itself counts up, or that hold another key, so none can be repeated."""


def test_every_constraint_has_an_attempt_against_it(rows: Rows) -> None:
    known = set(ATTEMPTS) | {constraint for constraint, _ in MORE.values()} | BY_CONSTRUCTION
    found = {str(row[0]) for row in rows.all(CONSTRAINTS, tables=list(HELD))}
    assert found - known == set()


@pytest.mark.parametrize("state", [S.DESTROYING, S.QUARANTINED])
def test_an_ending_spawn_does_not_stand_in_the_way_of_the_next(
    rows: Rows, state: SpawnState
) -> None:
    job = rows.request(state="assigned")
    rows.spawn(state, job=job)
    rows.spawn(state, job=job)
    rows.spawn(S.RESERVED, job=job)
    assert rows.count("spawns", "job_id = :job", job=job) == 3


@pytest.mark.parametrize("state", [S.RESERVED, S.IDLE, S.BUSY])
def test_a_job_of_a_static_agent_gets_no_spawn(rows: Rows, state: SpawnState) -> None:
    job = _held_by_static(rows)
    with pytest.raises(IntegrityError, match="spawns_job_id_fkey"):
        rows.spawn(state, job=job)


def test_a_job_with_a_live_spawn_gets_no_static_agent(rows: Rows) -> None:
    job = rows.request(state="assigned")
    spawn = rows.spawn(S.IDLE, job=job)
    taken: dict[str, Any] = {
        "static_agent": "static-1", "static_deadline_at": "infinity", "static_due_at": "infinity",
    }  # fmt: skip
    with pytest.raises(IntegrityError, match="spawns_job_id_fkey"):
        rows.set("scale_requests", job, **taken)
    rows.set("spawns", spawn, state="destroying", destroy_reason="shutdown", destroying_at="now")
    rows.set("scale_requests", job, **taken)


def test_a_warm_idle_agent_needs_not_be_looked_at(rows: Rows) -> None:
    rows.spawn(S.IDLE, due=None)


def test_an_agent_goes_with_its_spawn(rows: Rows) -> None:
    rows.gateway()
    agent = rows.agent(rows.spawn(S.IDLE))
    rows.execute("DELETE FROM spawns")
    assert rows.count("agents", "agent_id = :agent", agent=agent) == 0


def test_sealed_parts_may_stand_while_a_job_is_not_over(rows: Rows) -> None:
    for state in ("waiting", "assigned", "running"):
        job = rows.request(state=state)
        assert rows.get("scale_requests", job)["sealed_payload"] == ENVELOPE
