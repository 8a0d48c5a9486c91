"""Forgetting: rows past their retention go and counts are folded, in short transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kici_scaler.service.runtime import Runtime
from kici_scaler.store import (
    claims,
    counts,
    delivery_views,
    duties,
    events,
    gateways,
    outcomes,
    request_ends,
    retiring,
    settings,
    static_agents,
    tokens,
)
from kici_scaler.store.bulk import MOST_AT_ONCE
from kici_scaler.store.engine import transaction

DUTY = "retention"
INTERVAL_SECONDS = 60.0
GATEWAY_RETENTION_SECONDS = 86_400.0
MOST_ROUNDS = 40
"""Of one tick; what is left then waits for the next."""


def forget(runtime: Runtime) -> Mapping[str, int] | None:
    """What was forgotten by kind; None when another caller owns this tick."""
    with transaction(runtime.engine) as connection:
        if not duties.claim_tick(connection, DUTY, interval_seconds=INTERVAL_SECONDS):
            return None
    forgotten: Counter[str] = Counter()
    for _ in range(MOST_ROUNDS):
        some = _forget_some(runtime)
        forgotten.update(some)
        if max(some.values()) < MOST_AT_ONCE:
            break
    return dict(forgotten)


def _forget_some(runtime: Runtime) -> dict[str, int]:
    with transaction(runtime.engine) as connection:
        windows = settings.windows(connection)
        counts.fold(connection)
        return {
            "outcomes": outcomes.purge(connection, older_seconds=windows.outcome_retention_seconds),
            "requests": request_ends.purge(
                connection, older_seconds=windows.request_retention_seconds
            ),
            "events": events.purge(connection, older_seconds=windows.event_retention_seconds),
            "claims": claims.purge(connection, older_seconds=windows.claim_retention_seconds),
            "deliveries": delivery_views.purge(
                connection, older_seconds=windows.outcome_retention_seconds
            ),
            "tokens": tokens.purge_expired(connection),
            "scalers": len(retiring.forget_gone(connection)),
            "staticAgents": static_agents.purge(
                connection, absent_seconds=windows.stranded_timeout_seconds
            ),
            "gateways": gateways.purge(connection, older_seconds=GATEWAY_RETENTION_SECONDS),
        }
