"""What the end of a provision owes its targets, in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from sqlalchemy import Connection

from kici_scaler.domain.spawn import DestroyReason
from kici_scaler.domain.windows import Windows
from kici_scaler.service import revisions
from kici_scaler.store import claims, provisions, retiring, teardowns

log = structlog.get_logger(__name__)


def begin(
    connection: Connection, agent_ids: Sequence[str], *, reason: DestroyReason, windows: Windows
) -> None:
    """Call off scale-ups that were not sent, revoke the codes, owe the scale-downs.

    They go to the targets recorded with the spawn that may have acted. Of a spawn whose
    scale-ups left no record they go to all its targets, and to those of the configuration
    as it is (of a scaler that left it: as it was last) only when it has none itself.
    """
    claims.revoke(connection, agent_ids)
    teardowns.call_off_scale_ups(
        connection,
        agent_ids,
        why=f"called off: the provision ends ({reason})",
        dead_letter=reason is DestroyReason.SPAWN_TIMEOUT,
    )
    unrecorded = teardowns.without_deliveries(connection, agent_ids)
    teardowns.owe_scale_downs(connection, agent_ids, hint_after=windows.hint_after_seconds)
    if unrecorded:
        _complete_targets(connection, unrecorded)
        teardowns.owe_to_recorded_targets(
            connection, unrecorded, hint_after=windows.hint_after_seconds
        )


def _complete_targets(connection: Connection, agent_ids: Sequence[str]) -> None:
    cluster = revisions.active(connection).cluster
    leaving = retiring.all_retiring(connection)
    for agent_id, name in provisions.without_target(connection, agent_ids).items():
        its = revisions.by_id(connection, leaving[name]).cluster if name in leaving else cluster
        scaler = its.scaler(name)
        if scaler is not None and scaler.provisioning_targets:
            provisions.record_targets(connection, agent_id, scaler.provisioning_targets)
        else:
            log.error(
                "nobody is known who could take this machine away",
                agent_id=agent_id,
                hint=f"list provisioningTargets of scaler `{name}`, or end it by hand",
            )
