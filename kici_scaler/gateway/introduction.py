"""The first words of a connection: who is it, and may it stay."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from kici_scaler import metrics
from kici_scaler.agent.codec import to_plain
from kici_scaler.agent.protocol import (
    PROTOCOL_VERSION,
    Claim,
    ClaimResponse,
    CloseCode,
    Credentials,
    ProtocolViolation,
    Register,
    RegisterAck,
    UnknownMessage,
)
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway import claims, log_context
from kici_scaler.gateway.core import TRANSIENT, Gateway
from kici_scaler.gateway.lines import LineOrigin, clean
from kici_scaler.gateway.link import Link
from kici_scaler.gateway.session import Session
from kici_scaler.service import register
from kici_scaler.service.hello import Hello, Refusal, Refused, Welcome
from kici_scaler.store.engine import CommitUnknown

log = structlog.get_logger(__name__)

REGISTER_SECONDS: Final = 10.0
"""From the open socket to `register`; claims in between do not prolong it."""
MOST_LABELS: Final = 128
MOST_CHARACTERS: Final = 256
MOST_CLAIMS: Final = 3
HIGHEST_CONNECTION: Final = (1 << 63) - 1

_CODES = {
    Refusal.BAD_TOKEN: CloseCode.REFUSED,
    Refusal.BAD_LABELS: CloseCode.REFUSED,
    Refusal.UNOWNED: CloseCode.REFUSED,
    Refusal.TOLD_TO_GO: CloseCode.TOLD_TO_GO,
    Refusal.SUPERSEDED: CloseCode.SUPERSEDED,
    Refusal.FOR_NOW: CloseCode.REFUSED_FOR_NOW,
}
SUSPICIOUS = frozenset({Refusal.BAD_TOKEN, Refusal.BAD_LABELS})
"""Refusals that count against the address they come from."""


@dataclass(frozen=True, slots=True)
class Introduced:
    """An adopted agent: its session, what it said and what the rows say."""

    session: Session
    said: Register
    welcome: Welcome
    incarnation: str
    """Which one adopted it."""


class NotWelcome(Exception):
    """The connection ends here."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def introduce(gateway: Gateway, link: Link) -> Introduced:
    """Hear who it is and adopt it, or not.

    Refusals make an address wait, but no agent that returns to it with its resume token.

    Raises:
        NotWelcome: with the code to close with.
        LinkClosed: it went away.
        ProtocolViolation: it said something else.
    """
    said = await _greeting(gateway, link)
    _check(said)
    log_context.bind_agent(said.agent_id)
    may_return = said.resume_token is not None and gateway.resume.is_valid(
        said.agent_id, said.resume_token
    )
    if not may_return and gateway.failed_logins.wait_for(link.address) > 0:
        raise NotWelcome(CloseCode.REFUSED_FOR_NOW, "too many refused agents from this address")
    incarnation = gateway.incarnation
    welcome = await _register(gateway, said, may_return=may_return)
    if isinstance(welcome, Refused):
        if welcome.why in SUSPICIOUS:
            gateway.failed_logins.take(link.address)
        log.info("agent refused", agent=said.agent_id, why=welcome.why, detail=welcome.message)
        raise NotWelcome(_CODES[welcome.why], welcome.message)
    return Introduced(_session(link, said, welcome), said, welcome, incarnation)


async def _greeting(gateway: Gateway, link: Link) -> Register:
    """What it registers with; claims before that are answered."""
    try:
        async with asyncio.timeout(REGISTER_SECONDS):
            for _ in range(MOST_CLAIMS + 1):
                message = await link.hear()
                if isinstance(message, Register):
                    return message
                if not isinstance(message, Claim):
                    raise ProtocolViolation(f"{message.type} before register")
                await link.say(await _claimed(gateway, link, message))
    except TimeoutError:
        reason = f"no register within {REGISTER_SECONDS:g} s"
        raise NotWelcome(CloseCode.REFUSED_FOR_NOW, reason) from None
    except UnknownMessage as problem:
        raise ProtocolViolation(f"{problem} before register") from problem
    raise ProtocolViolation("too many claims on one connection")


async def _claimed(gateway: Gateway, link: Link, message: Claim) -> ClaimResponse:
    try:
        found = await claims.redeem(gateway, message.claim_code, link.address)
    except claims.NotRedeemed as problem:
        return ClaimResponse(message.request_id, error=str(problem))
    credentials = Credentials(
        found.agent_token, found.agent_id, found.orchestrator_url, found.labels
    )
    return ClaimResponse(message.request_id, credentials)


def _check(said: Register) -> None:
    if said.protocol != PROTOCOL_VERSION:
        raise NotWelcome(
            CloseCode.REFUSED,
            f"the agent speaks protocol {said.protocol}, this gateway {PROTOCOL_VERSION}",
        )
    if not 1 <= said.connection <= HIGHEST_CONNECTION:
        raise ProtocolViolation("register.connection: expected a number from 1 to 2^63 - 1")
    if len(said.labels) > MOST_LABELS:
        raise ProtocolViolation(f"register.labels: more than {MOST_LABELS}")
    for text in (said.agent_id, *said.labels):
        if not text.isprintable() or not 0 < len(text) <= MOST_CHARACTERS:
            raise ProtocolViolation(
                f"register: an id or label is empty, unprintable or over {MOST_CHARACTERS} long"
            )


async def _register(gateway: Gateway, said: Register, *, may_return: bool) -> Welcome | Refused:
    facts = {
        key: clean(value, MOST_CHARACTERS) if isinstance(value, str) else value
        for key, value in to_plain(said.facts).items()
    }
    hello = Hello(
        agent_id=said.agent_id,
        labels=said.labels,
        connection_number=said.connection,
        facts=facts,
        token=said.token,
        resume_is_valid=may_return,
        claimed_job=None if said.job is None else said.job.job_id,
    )
    if not gateway.incarnation:
        return Refused(Refusal.FOR_NOW, "this gateway is starting over; come back")
    try:
        return await gateway.threads.channel(
            register.register, gateway.runtime, gateway.incarnation, hello
        )
    except TRANSIENT as error:
        metrics.count(metrics.declared.ADOPTION_LOOKUP_FAILURES)
        log.warning("registration not decided", agent=said.agent_id, error=str(error))
        if isinstance(error, CommitUnknown):
            _take_back(gateway, said)
        return Refused(Refusal.FOR_NOW, "the database could not be asked; come back")


def _take_back(gateway: Gateway, said: Register) -> None:
    """It may have been adopted, but does not stay: its absence must be seen all the same."""
    session = gateway.sessions.get(said.agent_id)
    if session is None or session.connection != said.connection:
        gateway.departed.append((said.agent_id, said.connection))


def _session(link: Link, said: Register, welcome: Welcome) -> Session:
    origin = LineOrigin(
        agent_id=said.agent_id,
        run_id=welcome.run_id,
        job_id=welcome.job_id,
        source=welcome.spawn.backend_type if welcome.spawn else None,
    )
    session = Session(link, said.agent_id, said.connection, origin)
    session.resumed = said.job is not None
    session.single_use = welcome.spawn is not None
    is_busy = welcome.state is SpawnState.BUSY
    if is_busy and said.job is not None and said.job.job_id == welcome.job_id:
        session.running = welcome.job_id
    return session


def acknowledgement(gateway: Gateway, welcome: Welcome) -> RegisterAck:
    """What the adopted agent is told."""
    spawn = welcome.spawn
    return RegisterAck(
        agent_id=welcome.agent_id,
        resume_token=gateway.resume.issue(welcome.agent_id),
        mandatory_labels=welcome.gate,
        scaler_managed=spawn is not None,
        warm_pool=welcome.warm,
        pending_dispatch=welcome.job_id is not None and welcome.state is SpawnState.IDLE,
        scaler=None
        if spawn is None
        else {
            "name": spawn.scaler,
            "type": spawn.backend_type,
            "machineId": spawn.machine_id,
            "labelSet": list(spawn.label_set),
            "revision": spawn.revision_id,
            "warm": spawn.warm,
        },
    )
