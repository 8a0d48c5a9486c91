"""Forgetting: rows past their retention go and counts are folded, in one short transaction."""

from __future__ import annotations

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
from kici_scaler.store.engine import transaction

DUTY = "retention"
INTERVAL_SECONDS = 60.0
GATEWAY_RETENTION_SECONDS = 86_400.0


def forget(runtime: Runtime) -> Mapping[str, int] | None:
    """What was forgotten by kind; None when another caller owns this tick."""
    with transaction(runtime.engine) as connection:
        if not duties.claim_tick(connection, DUTY, interval_seconds=INTERVAL_SECONDS):
            return None
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
