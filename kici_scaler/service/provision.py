"""Asking for a provision: its one-time code is minted, and every target is owed a scale-up.

Crash table (`kill -9` at ...):
- before COMMIT: nothing happened; the spawns are reserved and due.
- after COMMIT: the deliveries are rows, due by themselves, and the code is in them, sealed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection

from kici_scaler.domain.scalers import BackendType, Scaler
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.domain.windows import Windows
from kici_scaler.service import ending, revisions, start
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import claims, deliveries, provisions, start_takes
from kici_scaler.store.claims import NewClaim
from kici_scaler.store.engine import transaction
from kici_scaler.store.start_takes import TakenStart

log = structlog.get_logger(__name__)

KIND = BackendType.EVENT.value
MOST_AT_ONCE = 100
Seal = Callable[[str], Mapping[str, object]]
"""Seals a code to the cluster's own key; what comes back may stand in a row."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What one pass did."""

    asked_for: int
    left_some: bool
    """Reserved spawns wait for a slot, or for the next pass."""


def begin(runtime: Runtime, *, seal: Seal, gateway_url: str) -> Begun:
    """Take the provisions that slots allow, and owe their targets a scale-up each.

    One whose configuration this version cannot read is given back, and holds up no other.

    Args:
        gateway_url: where agents connect to whose scaler names no other address.

    Raises:
        DatabaseUnreachable: nothing was begun for certain; what was is delivered later.
    """
    with transaction(runtime.engine) as connection:
        found = start_takes.take(
            connection, kind=KIND, machine_id=None, holder=runtime.owner, most=MOST_AT_ONCE
        )
        taken, windows = found.rows, found.windows
        # One that was taken before has its deliveries already.
        first = [(row, _scaler_of(connection, row)) for row in taken if row.attempts == 1]
        fresh = [(row, scaler) for row, scaler in first if scaler is not None]
        effects = [
            start.undo(connection, row, windows, why=start.UNREADABLE)
            for row, scaler in first
            if scaler is None
        ]
        effects.append(_ask(connection, fresh, windows, seal, gateway_url))
        provisions.hand_over(connection, [row.agent_id for row in taken], holder=runtime.owner)
    for each in effects:
        ending.announce(runtime, each)
    return Begun(len(fresh), found.left_some)


def _ask(
    connection: Connection,
    rows: Sequence[tuple[TakenStart, Scaler]],
    windows: Windows,
    seal: Seal,
    gateway_url: str,
) -> ending.Effects:
    """Mint and insert; a spawn that names no target fails at once."""
    codes = {row.agent_id: secrets.token_hex(32) for row, _ in rows}
    claims.insert(
        connection,
        [_claim(row, scaler, codes[row.agent_id], gateway_url) for row, scaler in rows],
    )
    asked = deliveries.ask_for(
        connection,
        {agent_id: seal(code) for agent_id, code in codes.items()},
        hint_after=windows.hint_after_seconds,
    )
    nobody = [agent_id for agent_id, count in asked.items() if count == 0]
    if not nobody:
        return ending.Effects()
    return ending.end(
        connection,
        nobody,
        states=(SpawnState.SPAWNING,),
        reason=DestroyReason.SPAWN_TIMEOUT,
        why="its scaler names nobody who could provide the machine: list provisioningTargets",
        windows=windows,
        failed=True,
        counts_against_scaler=True,
    )


def _scaler_of(connection: Connection, row: TakenStart) -> Scaler | None:
    return revisions.scaler_of(connection, row.revision_id, row.scaler)


def _claim(row: TakenStart, scaler: Scaler, code: str, gateway_url: str) -> NewClaim:
    return NewClaim(
        code_hash=claims.hashed(code),
        agent_id=row.agent_id,
        scaler=row.scaler,
        labels=row.agent_labels,
        orchestrator_url=scaler.orchestrator_url or gateway_url,
        ttl_seconds=scaler.claim_ttl_seconds,
        token_ttl_seconds=scaler.agent_token_ttl_seconds,
    )
