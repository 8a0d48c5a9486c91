"""A gateway that a test plays by hand: a real WebSocket server, one connection at a time."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from typing import TypeVar

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from kici_scaler.agent.protocol import (
    ConfigAck,
    FromAgent,
    FromGateway,
    JobAccepted,
    JobFinished,
    JobFinishedAck,
    JobOffer,
    JobPayload,
    JobResult,
    JobStart,
    Log,
    Register,
    RegisterAck,
    decode_from_agent,
    encode,
)

PATIENCE = 60.0
"""Seconds for anything that is expected; generous, since nothing waits for it in vain."""

Message = TypeVar("Message")


class Line:
    """One connection of an agent; what it said is kept in `heard`."""

    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket
        self.over = threading.Event()
        self.heard: list[FromAgent] = []

    def send(self, message: FromGateway) -> None:
        self._socket.send(encode(message))

    def send_text(self, text: str) -> None:
        """Send what no gateway should."""
        self._socket.send(text)

    def hear(self, within: float = PATIENCE) -> FromAgent:
        """The next message, whatever it is."""
        message = decode_from_agent(self._socket.recv(timeout=within))
        self.heard.append(message)
        return message

    def expect(self, kind: type[Message], within: float = PATIENCE) -> Message:
        """The next message, which must be of this kind."""
        message = self.hear(within)
        assert isinstance(message, kind), f"expected {kind.__name__}, heard {message}"
        return message

    def hear_until(self, kind: type[Message], within: float = PATIENCE) -> Message:
        """The next message of this kind; others before it are kept in `heard`."""
        while True:
            message = self.hear(within)
            if isinstance(message, kind):
                return message

    def logs(self) -> list[Log]:
        """The log messages heard so far."""
        return [each for each in self.heard if isinstance(each, Log)]

    def output(self, stream: str = "stdout") -> list[str]:
        """The lines of one stream heard so far."""
        return [line for log in self.logs() if log.stream == stream for line in log.lines]

    def welcome(self, **facts: object) -> Register:
        """Take the agent in; returns what it said."""
        greeting = self.expect(Register)
        known = {"agent_id": greeting.agent_id, "resume_token": "resume-1"}
        self.send(RegisterAck(**{**known, **facts}))  # type: ignore[arg-type]  # named by the test
        self.expect(ConfigAck)
        return greeting

    def offer(self, job_id: str = "job-1") -> None:
        """Offer a job and have it accepted."""
        self.send(JobOffer(job_id, "run-1"))
        assert self.expect(JobAccepted).job_id == job_id

    def start(self, *command: str, job_id: str = "job-1", **more: object) -> None:
        """Offer a job, have it accepted, and start it."""
        self.offer(job_id)
        self.send(JobStart(job_id, JobPayload(command, **more)))  # type: ignore[arg-type]  # same

    def finish(self) -> JobResult:
        """Wait for the result and acknowledge it."""
        finished = self.hear_until(JobFinished)
        self.send(JobFinishedAck(finished.job_id))
        return finished.result

    def closed(self, within: float = PATIENCE) -> int | None:
        """Wait for the agent's close; returns its code."""
        try:
            while True:
                self.hear(within)
        except ConnectionClosed as end:
            return end.rcvd.code if end.rcvd else None
        finally:
            self.over.set()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close as a gateway does."""
        self._socket.close(code, reason)
        self.over.set()

    def cut(self) -> None:
        """Break the connection without a word."""
        with contextlib.suppress(OSError):
            self._socket.socket.shutdown(socket.SHUT_RDWR)
        self.over.set()


class ScriptedGateway:
    """Where agents connect; `accept` gives the test their connections in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._waiting: queue.Queue[Line] = queue.Queue()
        self._lines: list[Line] = []

    def accept(self, within: float = PATIENCE) -> Line:
        """The next connection."""
        try:
            return self._waiting.get(timeout=within)
        except queue.Empty:
            raise AssertionError(f"no agent connected within {within:g} s") from None

    def handle(self, socket: ServerConnection) -> None:
        """Keep a connection until the test is done with it."""
        line = Line(socket)
        self._lines.append(line)
        self._waiting.put(line)
        line.over.wait()

    def release(self) -> None:
        """Let every connection end."""
        for line in self._lines:
            line.over.set()


@contextlib.contextmanager
def scripted_gateway(*, ping_interval: float | None = None) -> Iterator[ScriptedGateway]:
    """A gateway on a free loopback port."""
    listener = socket.create_server(("127.0.0.1", 0))
    gateway = ScriptedGateway(f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/agents")
    with serve(
        gateway.handle, sock=listener, compression=None, ping_interval=ping_interval
    ) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield gateway
        finally:
            gateway.release()
            server.shutdown()
            thread.join(PATIENCE)
