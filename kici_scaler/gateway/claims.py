"""Claims at this gateway: before anybody is authenticated, so every address has its share."""

from __future__ import annotations

import structlog
from sqlalchemy.exc import SQLAlchemyError

from kici_scaler.errors import KiciError
from kici_scaler.gateway.core import Gateway
from kici_scaler.service import claim
from kici_scaler.service.claim import ClaimFailure, Redeemed

log = structlog.get_logger(__name__)

MOST_CODE_CHARACTERS = 256
INTERNAL = "internal failure"
"""All that a caller is told of a failure of ours; it may ask again."""


class NotRedeemed(KiciError):
    """A code was not exchanged.

    Attributes:
        failure: why it never will be; None when asking again may help.
        retry_after: seconds to wait before that.
    """

    def __init__(
        self, message: str, *, failure: ClaimFailure | None = None, retry_after: float = 1.0
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.retry_after = retry_after


async def redeem(gateway: Gateway, code: str, address: str) -> Redeemed:
    """Exchange a code on behalf of whoever shows it; any gateway of the cluster can.

    Raises:
        NotRedeemed: with the text for the caller.
    """
    if (wait := gateway.claims.wait_for(address)) > 0:
        raise NotRedeemed("too many claims from this address; ask again later", retry_after=wait)
    gateway.claims.take(address)
    if not 0 < len(code) <= MOST_CODE_CHARACTERS:
        raise NotRedeemed(ClaimFailure.INVALID, failure=ClaimFailure.INVALID)
    try:
        found = await gateway.threads.channel(claim.redeem, gateway.runtime, code, address=address)
    except (KiciError, SQLAlchemyError) as error:
        log.warning("claim not decided", address=address, error=str(error))
        raise NotRedeemed(INTERNAL) from error
    if isinstance(found, ClaimFailure):
        raise NotRedeemed(found, failure=found)
    return found
