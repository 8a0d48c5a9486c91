"""An agent that a test plays by hand, over a real WebSocket."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from kici_scaler.agent.protocol import (
    PROTOCOL_VERSION,
    ConfigAck,
    Facts,
    FromAgent,
    FromGateway,
    JobAccepted,
    JobClaim,
    JobFinished,
    JobOffer,
    JobResult,
    JobStart,
    JobStatus,
    Log,
    Register,
    RegisterAck,
    Stream,
    decode_from_gateway,
    encode,
)
from kici_scaler.service.start import StartOrder

PATIENCE = 60.0
"""A machine that does other things too is slow, which is no failure."""
FACTS = Facts("linux", "x64", "test-host", 1, "0.0.0")

Message = TypeVar("Message", bound=FromGateway)


class PlayedAgent:
    """One connection to a gateway."""

    def __init__(self, socket: ClientConnection, order: StartOrder | None = None) -> None:
        self._socket = socket
        self._order = order

    def say(self, message: FromAgent) -> None:
        self._socket.send(encode(message))

    def say_text(self, text: str | bytes) -> None:
        """Send what no agent should."""
        self._socket.send(text)

    def hear(self, within: float = PATIENCE) -> FromGateway:
        """The next message."""
        return decode_from_gateway(self._socket.recv(timeout=within))

    def expect(self, kind: type[Message], within: float = PATIENCE) -> Message:
        """The next message, which must be of a kind."""
        message = self.hear(within)
        assert isinstance(message, kind), message
        return message

    def greeting(self, **changes: Any) -> Register:
        """A `register` as this agent should say it, with changes."""
        order = self._order
        assert order is not None
        said: dict[str, Any] = {
            "protocol": PROTOCOL_VERSION,
            "agent_id": order.row.agent_id,
            "labels": order.row.agent_labels,
            "connection": 1,
            "facts": FACTS,
            "token": order.agent_token,
        }
        return Register(**(said | changes))

    def register(self, **changes: Any) -> RegisterAck:
        """Register and take the answer in."""
        self.say(self.greeting(**changes))
        ack = self.expect(RegisterAck)
        self.say(ConfigAck())
        return ack

    def run_job(self, job_id: str) -> JobStart:
        """Accept the job that is offered."""
        offer = self.expect(JobOffer)
        assert offer.job_id == job_id
        self.say(JobAccepted(job_id))
        return self.expect(JobStart)

    def log(self, job_id: str, seq: int, *lines: str) -> None:
        self.say(Log(job_id, seq, Stream.STDOUT, lines))

    def finish(self, job_id: str, **changes: Any) -> None:
        """Report a success, or what `changes` make of it."""
        result: dict[str, Any] = {
            "status": JobStatus.SUCCEEDED,
            "started_at": 1,
            "finished_at": 2,
            "exit_code": 0,
        }
        self.say(JobFinished(job_id, JobResult(**(result | changes))))

    def closed(self, within: float = PATIENCE) -> int:
        """The code that the gateway closes with; what it says before is skipped."""
        with pytest.raises(ConnectionClosed) as end:
            self._hear_everything(within)
        assert end.value.rcvd is not None, "the connection broke without a close"
        return end.value.rcvd.code

    def _hear_everything(self, within: float) -> None:
        while True:
            self._socket.recv(timeout=within)

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def played(url: str, order: StartOrder | None = None) -> Iterator[PlayedAgent]:
    """A connection, closed at the end."""
    with connect(url, compression=None, open_timeout=10, close_timeout=2) as socket:
        yield PlayedAgent(socket, order)


def claim_of(job_id: str, phase: Any) -> JobClaim:
    """What an agent says of its job when it returns."""
    return JobClaim(job_id, phase)


def as_text(**fields: Any) -> str:
    """A message of any shape."""
    return json.dumps(fields)
