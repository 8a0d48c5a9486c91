"""Old rows are forgotten in steps, however many there are."""

from __future__ import annotations

import pytest

from kici_scaler.service import retention
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import events, outcomes, request_ends, tokens
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
