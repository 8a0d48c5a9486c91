"""A provisioned agent exchanges its one-time code for credentials.

Crash table (`kill -9` of the gateway at ...):
- before the first COMMIT: the code is as good as before; the agent asks again.
- after it, before the second: the code is used up and nothing was minted; a code is never
  opened again. Its agent cannot come, so the time to register ends the provision.
- after the second, before the answer: a token exists that nobody knows; likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from kici_scaler.checkpoints import reached
from kici_scaler.domain.spawn import CAN_REGISTER
from kici_scaler.errors import Unavailable
from kici_scaler.service import rearm
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import agents, claims, failovers, tokens
from kici_scaler.store.claims import ClaimRow, Standing, Unredeemed
from kici_scaler.store.engine import transaction

log = structlog.get_logger(__name__)


class ClaimFailure(StrEnum):
    """The texts that tell why a code is worth nothing, now and for ever."""

    INVALID = "invalid claim code"
    CONSUMED = "claim code already consumed"
    EXPIRED = "claim code expired"


_FAILURES = {
    Standing.UNKNOWN: ClaimFailure.INVALID,
    Standing.CONSUMED: ClaimFailure.CONSUMED,
    Standing.EXPIRED: ClaimFailure.EXPIRED,
}


@dataclass(frozen=True, slots=True)
class Redeemed:
    """What a code was exchanged for; the token exists only here and in the agent."""

    agent_id: str
    labels: tuple[str, ...]
    orchestrator_url: str
    agent_token: str = field(repr=False)


def redeem(runtime: Runtime, code: str, *, address: str) -> Redeemed | ClaimFailure:
    """Use a code up, and only then mint the token: one code, one token, over all gateways.

    Args:
        address: where the caller is, for the alert about a code that comes twice.

    Raises:
        DatabaseUnreachable: whether the code was used up is not known.
        Unavailable: its claim may be what a failover of the database lost.
    """
    with transaction(runtime.engine) as connection:
        row = claims.consume(connection, code)
    reached("claim.consumed")
    if row is None:
        return _refuse(runtime, code, address)
    return _mint(runtime, row)


def _mint(runtime: Runtime, row: ClaimRow) -> Redeemed | ClaimFailure:
    token = tokens.mint(row.agent_id, row.labels)
    with transaction(runtime.engine) as connection:
        spawn = agents.lock_spawn(connection, row.agent_id)
        if spawn is None or spawn.state not in CAN_REGISTER:
            return ClaimFailure.EXPIRED
        tokens.store(connection, [token], ttl_seconds=row.token_ttl_seconds)
    log.info("claim redeemed", agent_id=row.agent_id, scaler=row.scaler)
    return Redeemed(row.agent_id, row.labels, row.orchestrator_url, token.secret)


def _refuse(runtime: Runtime, code: str, address: str) -> ClaimFailure:
    with transaction(runtime.engine) as connection:
        found = claims.look_up(connection, code)
        if found.agent_id is not None:
            rearm.on_sign_of_life(connection, found.agent_id)
        elif failovers.is_held(connection):
            raise Unavailable("the database failed over; whether a claim is missing is not known")
    _tell(found, code, address)
    return _FAILURES[found.standing]


def _tell(found: Unredeemed, code: str, address: str) -> None:
    """A code that comes a second time was copied, or its answer was lost: somebody must look."""
    level = log.error if found.standing is Standing.CONSUMED else log.info
    level(
        "claim refused",
        why=_FAILURES[found.standing].value,
        agent_id=found.agent_id,
        claim=claims.hashed(code).hex()[:12],
        address=address,
    )
