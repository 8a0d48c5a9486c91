"""States of claims and deliveries that must not exist cannot be written, whatever code tries."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from tests.support.rows import Rows

CLAIM = {
    "code_hash": "sha256('a')",
    "agent_id": "'agent'",
    "scaler": "'cloud'",
    "labels": "'{}'",
    "orchestrator_url": "'wss://g'",
    "ttl_seconds": "300",
    "token_ttl_seconds": "600",
}
DELIVERY = {
    "agent_id": "'agent'",
    "scaler": "'cloud'",
    "kind": "'scale-up'",
    "target": "'https://t'",
}
DOWN = {**DELIVERY, "kind": "'scale-down'", "reason": "'idle'"}
NOW = "clock_timestamp()"
CODE = "'{}'"
OPEN = {"attempt_open": "true", "lease_token": "1", "lease_holder": "'w'", "lease_expires_at": NOW}
COUNT = {"scaler": "'cloud'", "kind": "'scale-up'", "delivered": "1"}


def insert(rows: Rows, table: str, values: dict[str, str]) -> None:
    rows.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})")


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("claims", CLAIM),
        ("claims", {**CLAIM, "consumed_at": NOW, "reused_at": NOW}),
        ("event_deliveries", DELIVERY),
        ("event_deliveries", {**DELIVERY, "sealed_code": CODE, "code_until": NOW}),
        ("event_deliveries", {**DELIVERY, **OPEN}),
        ("event_deliveries", {**DELIVERY, "state": "'unknown'", "closed_at": NOW, **OPEN}),
        ("event_deliveries", DOWN),
        ("delivery_counts", COUNT),
    ],
)
def test_ordinary_rows_can_be_written(rows: Rows, table: str, values: dict[str, str]) -> None:
    insert(rows, table, values)


WRONG: list[tuple[str, str, dict[str, str]]] = [
    ("claims_code_hash_check", "claims", {**CLAIM, "code_hash": "'short'"}),
    ("claims_ttl_seconds_check", "claims", {**CLAIM, "ttl_seconds": "0"}),
    ("claims_token_ttl_seconds_check", "claims", {**CLAIM, "token_ttl_seconds": "0"}),
    ("claims_reused_was_consumed", "claims", {**CLAIM, "reused_at": NOW}),
    ("event_deliveries_kind_check", "event_deliveries", {**DELIVERY, "kind": "'other'"}),
    ("event_deliveries_state_check", "event_deliveries",
     {**DELIVERY, "state": "'other'", "closed_at": NOW}),
    ("event_deliveries_round_check", "event_deliveries", {**DELIVERY, "round": "0"}),
    ("event_deliveries_attempts_check", "event_deliveries", {**DELIVERY, "attempts": "-1"}),
    ("event_deliveries_down_has_reason", "event_deliveries", {**DELIVERY, "reason": "'idle'"}),
    ("event_deliveries_down_has_reason", "event_deliveries",
     {**DELIVERY, "kind": "'scale-down'"}),
    ("event_deliveries_code_is_erased", "event_deliveries",
     {**DELIVERY, "state": "'done'", "closed_at": NOW, "sealed_code": CODE}),
    ("event_deliveries_only_ups_have_codes", "event_deliveries", {**DOWN, "sealed_code": CODE}),
    ("event_deliveries_only_ups_have_codes", "event_deliveries", {**DOWN, "code_until": NOW}),
    ("event_deliveries_closed_when_over", "event_deliveries", {**DELIVERY, "state": "'done'"}),
    ("event_deliveries_closed_when_over", "event_deliveries", {**DELIVERY, "closed_at": NOW}),
    ("event_deliveries_lease_is_whole", "event_deliveries", {**DELIVERY, "attempt_open": "true"}),
    ("event_deliveries_lease_is_whole", "event_deliveries",
     {**DELIVERY, "lease_holder": "'w'", "lease_expires_at": NOW}),
    ("event_deliveries_lease_is_whole", "event_deliveries",
     {**DELIVERY, **OPEN, "lease_token": "NULL"}),
    ("event_deliveries_not_done_is_certain", "event_deliveries",
     {**DELIVERY, "state": "'not-done'", "closed_at": NOW, "may_have_acted": "true"}),
    ("delivery_counts_delivered_check", "delivery_counts", {**COUNT, "delivered": "0"}),
]  # fmt: skip
TWICE: list[tuple[str, str, dict[str, str], dict[str, str]]] = [
    ("claims_pkey", "claims", CLAIM, {**CLAIM, "agent_id": "'another'"}),
    ("claims_agent_id_key", "claims", CLAIM, {**CLAIM, "code_hash": "sha256('b')"}),
    ("event_deliveries_one_a_round", "event_deliveries", DELIVERY, DELIVERY),
    ("event_deliveries_request_id_key", "event_deliveries", {**DELIVERY, "request_id": "'1'"},
     {**DOWN, "request_id": "'1'"}),
    ("delivery_counts_pkey", "delivery_counts", COUNT, COUNT),
]  # fmt: skip


@pytest.mark.parametrize(("constraint", "table", "values"), WRONG)
def test_it_cannot_be_written(
    rows: Rows, constraint: str, table: str, values: dict[str, str]
) -> None:
    with pytest.raises(IntegrityError, match=re.escape(constraint)):
        insert(rows, table, values)


@pytest.mark.parametrize(("constraint", "table", "first", "second"), TWICE)
def test_it_cannot_be_written_twice(
    rows: Rows, constraint: str, table: str, first: dict[str, str], second: dict[str, str]
) -> None:
    insert(rows, table, first)
    with pytest.raises(IntegrityError, match=re.escape(constraint)):
        insert(rows, table, second)


def test_every_constraint_has_an_attempt_against_it(rows: Rows) -> None:
    known: set[Any] = {each[0] for each in WRONG} | {each[0] for each in TWICE}
    found = rows.all("""
        SELECT conname FROM pg_constraint WHERE contype IN ('c', 'u', 'p')
          AND conrelid::regclass::text IN ('claims', 'event_deliveries', 'delivery_counts')
    """)
    assert {row[0] for row in found} - known == {"event_deliveries_pkey"}
