"""Claims over HTTP, for machines that redeem their code before any agent runs."""

from __future__ import annotations

from typing import Final, Self

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from kici_scaler.gateway import claims
from kici_scaler.gateway.errors import HttpError
from kici_scaler.gateway.models import Shape
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.service.claim import ClaimFailure, Redeemed

router = APIRouter(prefix="/v1/claims", tags=["claims"])

_STATUSES: Final = {
    ClaimFailure.INVALID: (404, "invalid-claim"),
    ClaimFailure.CONSUMED: (409, "claim-consumed"),
    ClaimFailure.EXPIRED: (410, "claim-expired"),
}


class ClaimBody(BaseModel):
    """A one-time code, as the scale-up event carried it."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    claim_code: str = Field(min_length=1, max_length=claims.MOST_CODE_CHARACTERS, repr=False)


class CredentialsView(Shape):
    """What a code was exchanged for, once."""

    agent_token: str = Field(repr=False)
    agent_id: str
    orchestrator_url: str
    labels: list[str]

    @classmethod
    def of(cls, found: Redeemed) -> Self:
        """From what was minted."""
        return cls(
            agent_token=found.agent_token,
            agent_id=found.agent_id,
            orchestrator_url=found.orchestrator_url,
            labels=list(found.labels),
        )


@router.post("/redeem")
async def redeem(body: ClaimBody, request: Request, gateway: TheGateway) -> CredentialsView:
    """Exchange a claim code for an agent's credentials; needs no key, and works once.

    404: no such code. 409: it was used. 410: it is too late. 429 and 503: ask again later.
    """
    address = request.client.host if request.client else ""
    try:
        return CredentialsView.of(await claims.redeem(gateway, body.claim_code, address))
    except claims.NotRedeemed as problem:
        raise answer_of(problem) from problem


def answer_of(problem: claims.NotRedeemed) -> HttpError:
    """What an HTTP caller is told."""
    if problem.failure is not None:
        status, code = _STATUSES[problem.failure]
        return HttpError(status, code, str(problem))
    if str(problem) == claims.INTERNAL:
        return HttpError(503, "unavailable", str(problem), retry_after=problem.retry_after)
    return HttpError(429, "too-many-claims", str(problem), retry_after=problem.retry_after)
