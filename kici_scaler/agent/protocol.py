"""The agent channel: every message, close code and limit, for both ends.

One JSON object per WebSocket text message; its `type` names the message. The agent and
the gateway both read this module, so neither can drift; `docs/agent-protocol.md` tells
the same with examples and the order in which messages go.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import TypeVar

from kici_scaler.agent.codec import Malformed, dumps, from_plain, loads_object, to_plain
from kici_scaler.agent.messages import (
    MAX_LINE_BYTES,
    MAX_MESSAGE_BYTES,
    MIN_MESSAGE_BYTES,
    Claim,
    ClaimResponse,
    ConfigAck,
    Credentials,
    ErrorNotice,
    Facts,
    FromAgent,
    FromGateway,
    JobAccepted,
    JobCancel,
    JobClaim,
    JobDeclined,
    JobFinished,
    JobFinishedAck,
    JobOffer,
    JobPayload,
    JobResult,
    JobStart,
    Leaving,
    Log,
    Register,
    RegisterAck,
    Shutdown,
)
from kici_scaler.agent.vocabulary import (
    ClaimError,
    DeclineReason,
    JobPhase,
    JobStatus,
    LeaveReason,
    Stream,
)

__all__ = [
    "MAX_LINE_BYTES",
    "MAX_MESSAGE_BYTES",
    "MIN_MESSAGE_BYTES",
    "PATH",
    "PROTOCOL_VERSION",
    "Claim",
    "ClaimError",
    "ClaimResponse",
    "CloseCode",
    "ConfigAck",
    "Credentials",
    "DeclineReason",
    "ErrorNotice",
    "Facts",
    "FromAgent",
    "FromGateway",
    "JobAccepted",
    "JobCancel",
    "JobClaim",
    "JobDeclined",
    "JobFinished",
    "JobFinishedAck",
    "JobOffer",
    "JobPayload",
    "JobPhase",
    "JobResult",
    "JobStart",
    "JobStatus",
    "LeaveReason",
    "Leaving",
    "Log",
    "ProtocolViolation",
    "Register",
    "RegisterAck",
    "Shutdown",
    "Stream",
    "UnknownMessage",
    "Verdict",
    "decode_from_agent",
    "decode_from_gateway",
    "encode",
    "verdict_of",
]

PROTOCOL_VERSION = 1
"""What `register` carries; a gateway refuses for ever a version it does not speak."""

PATH = "/v1/agents"
"""Where a gateway serves the channel."""

Message = TypeVar("Message")


class ProtocolViolation(ValueError):
    """The other side sent something the protocol does not allow."""


class UnknownMessage(ProtocolViolation):
    """A message type this side has no name for; a newer peer may send such."""


class CloseCode(IntEnum):
    """Close codes of this protocol; those of RFC 6455 all mean "come back later"."""

    GOING_AWAY = 4000
    """The gateway stops; its agents come back through another or the next."""
    SUPERSEDED = 4001
    """A newer connection of the same agent took over; says nothing about the agent."""
    REFUSED_FOR_NOW = 4003
    """Could not be judged now (a look-up failed); come back with backoff."""
    REFUSED = 4100
    """Never: bad token, an id without a spawn, labels of someone else."""
    TOLD_TO_GO = 4101
    """The compute is being destroyed."""
    PROTOCOL_VIOLATION = 4102
    """The other side broke the protocol; coming back would break it again."""


class Verdict(StrEnum):
    """What a close code tells an agent to do."""

    COME_BACK = "come-back"
    REFUSED = "refused"
    GO = "go"
    VIOLATION = "violation"


_FINAL: Mapping[int, Verdict] = MappingProxyType(
    {
        CloseCode.REFUSED: Verdict.REFUSED,
        CloseCode.TOLD_TO_GO: Verdict.GO,
        CloseCode.PROTOCOL_VIOLATION: Verdict.VIOLATION,
    }
)


def verdict_of(code: int | None) -> Verdict:
    """What a close means to the agent; None stands for a connection that just broke."""
    return _FINAL.get(code or 0, Verdict.COME_BACK)


_FROM_AGENT: Mapping[str, type[FromAgent]] = {each.type: each for each in FromAgent.__args__}
_FROM_GATEWAY: Mapping[str, type[FromGateway]] = {each.type: each for each in FromGateway.__args__}


def encode(message: FromAgent | FromGateway) -> str:
    """The text of one WebSocket message."""
    return dumps({"type": message.type, **to_plain(message)})


def decode_from_agent(text: str | bytes) -> FromAgent:
    """What an agent sent.

    Raises:
        UnknownMessage: a type this version does not know.
        ProtocolViolation: not a JSON object, or a field is missing or wrong.
    """
    return _decode(_FROM_AGENT, text)


def decode_from_gateway(text: str | bytes) -> FromGateway:
    """What a gateway sent; raises like `decode_from_agent`."""
    return _decode(_FROM_GATEWAY, text)


def _decode(known: Mapping[str, type[Message]], text: str | bytes) -> Message:
    try:
        value = loads_object(text)
        kind = value.get("type")
        if not isinstance(kind, str):
            raise ProtocolViolation("a message without a type")
        if kind not in known:
            raise UnknownMessage(f"unknown message type {kind[:40]!r}")
        return from_plain(known[kind], value, kind)
    except Malformed as problem:
        raise ProtocolViolation(str(problem)) from problem
