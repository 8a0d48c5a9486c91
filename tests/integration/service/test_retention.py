"""Old rows are forgotten in steps, however many there are."""

from __future__ import annotations

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import retention
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import delivery_views, events, outcomes, request_ends, tokens
from tests.support.rows import Rows


def test_a_backlog_is_forgotten_in_one_tick_and_in_small_steps(
    runtime: Runtime, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (outcomes, request_ends, events, tokens):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(retention, "MOST_AT_ONCE", 3)
    long_ago = "clock_timestamp() - interval '9 days'"
    for number in range(8):
        job = rows.request(state="succeeded")
        rows.execute(f"UPDATE scale_requests SET finished_at = {long_ago}")
        rows.execute(f"INSERT INTO events (at, type, job_id) VALUES ({long_ago}, 'x', :j)", j=job)
        rows.execute(
            "INSERT INTO outcomes (agent_id, scaler, backend_type, updated_at)"
            f" VALUES (:agent, 's', 'event', {long_ago})",
            agent=f"a{number}",
        )
        rows.execute(
            "INSERT INTO agent_tokens (token_hash, agent_id, labels, expires_at)"
            f" VALUES (sha256(CAST(:agent AS text)::bytea), :agent, '{{}}', {long_ago})",
            agent=f"a{number}",
        )
    assert rows.call(events.purge, older_seconds=60) == 3
    forgotten = retention.forget(runtime)
    assert forgotten is not None
    found = {kind: forgotten[kind] for kind in ("outcomes", "requests", "events", "tokens")}
    assert found == {"outcomes": 8, "requests": 8, "events": 5, "tokens": 8}
    assert retention.forget(runtime) is None


_DELIVERY = """
    INSERT INTO event_deliveries
        (agent_id, scaler, kind, target, state, created_at, closed_at)
    SELECT :agent, 's', 'scale-up', 't', CASE WHEN closed IS NULL THEN 'pending' ELSE 'done' END,
        clock_timestamp() - make_interval(secs => :created),
        clock_timestamp() - make_interval(secs => closed)
    FROM (SELECT CAST(:closed AS double precision) AS closed) AS given
"""


def _delivery(rows: Rows, agent: str, *, created: float, closed: float | None = None) -> str:
    rows.execute(_DELIVERY, agent=agent, created=created, closed=closed)
    return agent


def test_deliveries_go_when_they_are_over_for_long_or_nobody_knows_of_their_agent(
    rows: Rows,
) -> None:
    def outcome(agent: str) -> None:
        rows.execute(
            "INSERT INTO outcomes (agent_id, scaler, backend_type) VALUES (:a, 's', 'event')",
            a=agent,
        )

    live = rows.spawn(SpawnState.BOOTING)
    _delivery(rows, live, created=9_000, closed=8_000)
    _delivery(rows, "long over", created=9_000, closed=8_000)
    _delivery(rows, "just over", created=9_000, closed=10)
    _delivery(rows, "owed", created=9_000)
    _delivery(rows, "owed and forgotten", created=9_000)
    _delivery(rows, "owed of late", created=10)
    for agent in ("long over", "just over", "owed"):
        outcome(agent)
    assert rows.call(delivery_views.purge, older_seconds=3_600) == 2
    left = {row.agent_id for row in rows.all("SELECT agent_id FROM event_deliveries")}
    assert left == {live, "just over", "owed", "owed of late"}
