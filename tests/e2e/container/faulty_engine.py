"""A runtime's socket behind which requests fail, hang, or cost their sender its life."""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import socketserver
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Lock

from tests.support.waiting import eventually

Deal = tuple[str | None, float]
"""The fault of a request, None for none, and a number that some of them read."""


@dataclass(frozen=True)
class Faults:
    """How likely each fault is, for each request; the rest goes through."""

    refused: float = 0.02
    """An error, and nothing was done."""
    lost: float = 0.02
    """It was done, and the answer is an error or a broken connection."""
    slow: float = 0.01
    """It is done after a while, which may be after its sender gave up."""
    slow_seconds: tuple[float, float] = (1.0, 9.0)
    killed_before: float = 0.025
    """Its sender is killed, and nothing was done."""
    killed_after: float = 0.025
    """Its sender is killed, and it was done."""
    spared: int = 0
    """A process that none of this happens to; 0 is none."""

    def deals(self, seed: int) -> Iterator[Deal]:
        """What becomes of one request after another."""
        dice = random.Random(seed)
        while True:
            fault, point = dice.random(), dice.random()
            for kind in ("refused", "lost", "slow", "killed_before", "killed_after"):
                fault -= getattr(self, kind)
                if fault < 0:
                    yield kind, point
                    break
            else:
                yield None, point


@dataclass(frozen=True)
class KilledAt:
    """The sender of the request of that number, from 1 on, is killed; all others go through."""

    number: int
    is_done: bool
    """Whether what it asked for is done all the same."""
    spared: int
    """The process whose requests go through and are not counted: that of the test itself."""
    slow_seconds: tuple[float, float] = (0.0, 0.0)

    def deals(self, _seed: int) -> Iterator[Deal]:
        """What becomes of one request after another."""
        through: list[Deal] = [(None, 0.0)]
        yield from through * (self.number - 1)
        yield "killed_after" if self.is_done else "killed_before", 1.0
        while True:
            yield from through


@contextmanager
def faulty(socket_path: Path, to: Path, seed: int, faults: Faults | KilledAt) -> Iterator[None]:
    """Serve `socket_path` in a process of its own, in front of the runtime at `to`."""
    pid = os.fork()
    if pid == 0:
        try:
            _serve(socket_path, to, faults, seed)
        finally:
            os._exit(1)
    try:
        eventually(lambda: _listens(socket_path))
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        socket_path.unlink(missing_ok=True)


def _listens(socket_path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.connect(str(socket_path))
        return True
    return False


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class _Upstream(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=120)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def _serve(socket_path: Path, to: Path, faults: Faults | KilledAt, seed: int) -> None:
    deals = faults.deals(seed)
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return None

        def handle_one_request(self) -> None:
            with suppress(ConnectionError):
                super().handle_one_request()

        def _handle(self) -> None:
            body = self._body()
            kind, point = None, 0.0
            if self._sender() != faults.spared:
                with lock:
                    kind, point = next(deals)
            if kind is None:
                self._answer(*self._ask(body))
            else:
                getattr(self, f"_{kind}")(body, point)

        def __getattr__(self, name: str) -> object:
            """Whatever the method, it is handled alike."""
            if name.startswith("do_"):
                return self._handle
            raise AttributeError(name)

        def _refused(self, _body: bytes, point: float) -> None:
            if point < 0.5:
                self._hang_up()
            else:
                self._answer(500, [], b'{"message": "injected: not done"}')

        def _lost(self, body: bytes, point: float) -> None:
            self._ask(body)
            if point < 0.5:
                self._hang_up()
            else:
                self._answer(500, [], b'{"message": "injected: done"}')

        def _slow(self, body: bytes, point: float) -> None:
            Event().wait(faults.slow_seconds[point < 0.5])
            self._answer(*self._ask(body))

        def _killed_before(self, _body: bytes, _point: float) -> None:
            self._kill_sender()
            self._hang_up()

        def _killed_after(self, body: bytes, point: float) -> None:
            if point < 0.5:
                self._kill_sender()
                self._ask(body)
            else:
                self._ask(body)
                self._kill_sender()
            self._hang_up()

        def _sender(self) -> int:
            size = struct.calcsize("3i")
            said = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            return int(struct.unpack("3i", said)[0])

        def _kill_sender(self) -> None:
            pid = self._sender()
            assert pid > 1, "the sender is in another namespace of processes"
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        def _hang_up(self) -> None:
            self.close_connection = True

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            kept = {
                key: value
                for key, value in self.headers.items()
                if key.lower() not in ("transfer-encoding", "content-length", "connection")
            }
            upstream = _Upstream(to)
            upstream.request(self.command, self.path, body, kept)
            answer = upstream.getresponse()
            content = answer.read()
            upstream.close()
            return answer.status, answer.getheaders(), content

        def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response_only(status)
            for key, value in headers:
                if key.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(key, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    with _Server(str(socket_path), Handler) as server:
        server.serve_forever()
