"""What must not exist of warm pools, machine reports, claims and deliveries cannot be written."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from tests.integration.store.test_constraints import CONSTRAINTS, Attempt
from tests.support.rows import Rows


def _insert(rows: Rows, table: str, given: dict[str, Any]) -> int:
    names = ", ".join(given)
    values = ", ".join(f":{name}" for name in given)
    return rows.execute(f"INSERT INTO {table} ({names}) VALUES ({values})", **given)


def _pool(rows: Rows, **more: Any) -> int:
    return _insert(
        rows, "warm_pools", {"scaler": "a", "label_set": "x", "target": 1, "short": 0, **more}
    )


def _warm_count(rows: Rows, **more: Any) -> int:
    return _insert(
        rows, "warm_counts", {"scaler": "a", "label_set": "x", "what": "hit", "n": 1, **more}
    )


def _claim(rows: Rows, agent: str = "a", **more: Any) -> int:
    given = {
        "code_hash": bytes(32),
        "agent_id": agent,
        "scaler": "cloud",
        "labels": [],
        "orchestrator_url": "wss://example.test",
        "ttl_seconds": 300,
        "token_ttl_seconds": 600,
        **more,
    }
    return _insert(rows, "claims", given)


def _delivery(rows: Rows, **more: Any) -> int:
    given = {
        "agent_id": "a",
        "scaler": "cloud",
        "kind": "scale-up",
        "target": "https://example.test/hook",
        **more,
    }
    return _insert(rows, "event_deliveries", given)


def _delivery_count(rows: Rows, **more: Any) -> int:
    return _insert(
        rows, "delivery_counts", {"scaler": "a", "kind": "scale-up", "delivered": 1, **more}
    )


def _report(rows: Rows, machine: str = "m1") -> int:
    given = {"machine_id": machine, "backend_type": "bare-metal", "scaler": "a", "reason": "no"}
    return _insert(rows, "machine_scalers", given)


ATTEMPTS: dict[str, Attempt] = {
    "warm_pools_pkey": lambda rows: (_pool(rows), _pool(rows)),
    "warm_pools_target_check": lambda rows: _pool(rows, target=-1),
    "warm_pools_short_check": lambda rows: _pool(rows, short=-1),
    "warm_counts_what_check": lambda rows: _warm_count(rows, what="guess"),
    "warm_counts_n_check": lambda rows: _warm_count(rows, n=0),
    "claims_pkey": lambda rows: (_claim(rows), _claim(rows, "b")),
    "claims_agent_id_key": lambda rows: (_claim(rows), _claim(rows, code_hash=b"1" * 32)),
    "claims_code_hash_check": lambda rows: _claim(rows, code_hash=bytes(31)),
    "claims_ttl_seconds_check": lambda rows: _claim(rows, ttl_seconds=0),
    "claims_token_ttl_seconds_check": lambda rows: _claim(rows, token_ttl_seconds=0),
    "claims_reused_was_consumed": lambda rows: _claim(rows, reused_at="2025-01-01T00:00:00Z"),
    "event_deliveries_request_id_key": lambda rows: (
        _delivery(rows, request_id="r"),
        _delivery(rows, request_id="r", agent_id="b"),
    ),
    "event_deliveries_one_a_round": lambda rows: (_delivery(rows), _delivery(rows)),
    "event_deliveries_kind_check": lambda rows: _delivery(rows, kind="scale"),
    "event_deliveries_state_check": lambda rows: _delivery(
        rows, state="sent", closed_at="2025-01-01T00:00:00Z"
    ),
    "event_deliveries_round_check": lambda rows: _delivery(rows, round=0),
    "event_deliveries_attempts_check": lambda rows: _delivery(rows, attempts=-1),
    "event_deliveries_down_has_reason": lambda rows: _delivery(rows, reason="idle"),
    "event_deliveries_code_is_erased": lambda rows: _delivery(
        rows, state="done", closed_at="2025-01-01T00:00:00Z", sealed_code="{}"
    ),
    "event_deliveries_only_ups_have_codes": lambda rows: _delivery(
        rows, kind="scale-down", reason="idle", sealed_code="{}"
    ),
    "event_deliveries_closed_when_over": lambda rows: _delivery(rows, state="done"),
    "event_deliveries_lease_is_whole": lambda rows: _delivery(rows, attempt_open=True),
    "event_deliveries_not_done_is_certain": lambda rows: _delivery(
        rows, state="not-done", closed_at="2025-01-01T00:00:00Z", may_have_acted=True
    ),
    "delivery_counts_pkey": lambda rows: (_delivery_count(rows), _delivery_count(rows)),
    "delivery_counts_delivered_check": lambda rows: _delivery_count(rows, delivered=0),
    "machine_scalers_pkey": lambda rows: (rows.machine(), _report(rows), _report(rows)),
    "machine_scalers_machine_id_backend_type_fkey": lambda rows: _report(rows, "unknown"),
}
"""By the name of the constraint, what it must refuse."""

HELD = (
    "warm_pools", "warm_counts", "claims", "event_deliveries", "delivery_counts",
    "machine_scalers",
)  # fmt: skip
BY_CONSTRUCTION = {"warm_counts_pkey", "event_deliveries_pkey"}
"""Keys that the database itself counts up, so no statement can repeat one."""


@pytest.mark.parametrize("constraint", ATTEMPTS)
def test_the_constraint_refuses(rows: Rows, constraint: str) -> None:
    with pytest.raises(IntegrityError, match=re.escape(constraint)):
        ATTEMPTS[constraint](rows)


def test_every_constraint_has_an_attempt_against_it(rows: Rows) -> None:
    found = {str(row[0]) for row in rows.all(CONSTRAINTS, tables=list(HELD))}
    assert found - set(ATTEMPTS) - BY_CONSTRUCTION == set()


def test_what_a_machine_said_of_scalers_goes_with_it(rows: Rows) -> None:
    rows.machine()
    _report(rows)
    rows.execute("DELETE FROM machines")
    assert rows.count("machine_scalers") == 0
