"""The proxy breaks connections as told, and only so."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial

import pytest

from tests.support.tcp_proxy import Counts, CutReply, CutRequest, Delay, Mode, TcpProxy
from tests.support.waiting import eventually

SHORT = 0.2
"""Seconds after which nothing more is expected to arrive."""


class _Echo(socketserver.StreamRequestHandler):
    """Answers each line with itself, and writes down what it received."""

    def handle(self) -> None:
        assert isinstance(self.server, EchoServer)
        with suppress(ConnectionError):
            for line in self.rfile:
                self.server.received.append(line)
                self.wfile.write(line)
        self.server.ended.append(True)


class EchoServer(socketserver.ThreadingTCPServer):
    """A server whose memory the tests can look at: `received` lines, `ended` connections."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echo)
        self.received: list[bytes] = []
        self.ended: list[bool] = []


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with EchoServer() as echo:
        thread = threading.Thread(target=echo.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield echo
        echo.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[TcpProxy]:
    host, port = server.server_address[:2]
    with TcpProxy((str(host), port)) as between:
        yield between


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=5)


def ask(client: socket.socket, line: bytes) -> bytes:
    """One request and its reply; nothing when the connection was closed."""
    client.sendall(line)
    return client.recv(4096)


def is_silent(client: socket.socket) -> bool:
    """Whether nothing arrives for a while, not even an end."""
    client.settimeout(SHORT)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(5)
    return False


def test_everything_passes_at_first(server: EchoServer, proxy: TcpProxy) -> None:
    with closing(connect(proxy)) as client:
        assert ask(client, b"one\n") == b"one\n"
        assert ask(client, b"two\n") == b"two\n"
        assert proxy.open_connections == 1
    eventually(lambda: proxy.open_connections == 0, why="the connection ends")
    assert server.received == [b"one\n", b"two\n"]
    assert proxy.counts == Counts(accepted=1, request_bytes=8, reply_bytes=8)


def test_much_passes_unchanged(proxy: TcpProxy) -> None:
    sent = b"x" * 3_000_000 + b"\n"
    received = bytearray()
    with closing(connect(proxy)) as client:
        writer = threading.Thread(target=client.sendall, args=(sent,))
        writer.start()
        while len(received) < len(sent):
            received += client.recv(1 << 20)
        writer.join()
    assert bytes(received) == sent


def test_a_client_that_has_said_all_still_gets_its_reply(proxy: TcpProxy) -> None:
    with closing(connect(proxy)) as client:
        client.sendall(b"last\n")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b"last\n"
        assert client.recv(100) == b""


def test_refusing_leaves_open_connections_alone_until_they_are_dropped(proxy: TcpProxy) -> None:
    with closing(connect(proxy)) as client:
        assert ask(client, b"before\n") == b"before\n"
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        assert ask(client, b"still\n") == b"still\n"
        assert proxy.drop() == 1
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_the_port_is_kept_while_refusing(proxy: TcpProxy) -> None:
    for _ in range(3):
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        proxy.listen()
        with closing(connect(proxy)) as client:
            assert ask(client, b"again\n") == b"again\n"


def test_a_reset_reaches_open_connections_and_new_ones(proxy: TcpProxy) -> None:
    with closing(connect(proxy)) as client:
        assert ask(client, b"before\n") == b"before\n"
        proxy.requests = Mode.RESET
        with pytest.raises(ConnectionResetError):
            ask(client, b"after\n")
    with pytest.raises(ConnectionResetError), closing(connect(proxy)) as late:
        ask(late, b"late\n")
    assert proxy.counts.resets == 2


def test_swallowed_requests_never_reach_the_server(server: EchoServer, proxy: TcpProxy) -> None:
    proxy.requests = Mode.SWALLOW
    with closing(connect(proxy)) as client:
        client.sendall(b"lost\n")
        assert is_silent(client)
        proxy.requests = Mode.PASS
        assert ask(client, b"found\n") == b"found\n"
    assert server.received == [b"found\n"]
    assert proxy.counts.swallowed_bytes == 5


def test_swallowed_replies_leave_the_request_done(server: EchoServer, proxy: TcpProxy) -> None:
    with closing(connect(proxy)) as client, proxy.treating(replies=Mode.SWALLOW):
        client.sendall(b"done\n")
        assert is_silent(client)
    assert server.received == [b"done\n"]
    assert proxy.replies is Mode.PASS


def test_a_delay_is_waited_for(proxy: TcpProxy) -> None:
    proxy.replies = Delay(SHORT)
    with closing(connect(proxy)) as client:
        start = time.monotonic()
        assert ask(client, b"slow\n") == b"slow\n"
        assert time.monotonic() - start >= SHORT


def test_a_delay_holds_back_its_own_direction_only(server: EchoServer, proxy: TcpProxy) -> None:
    proxy.replies = Delay(3600)
    with closing(connect(proxy)) as client:
        client.sendall(b"held\n")
        eventually(lambda: server.received == [b"held\n"], why="the request passes")
        assert is_silent(client)


def test_a_cut_reply_loses_the_answer_of_a_request_that_was_done(
    server: EchoServer, proxy: TcpProxy
) -> None:
    proxy.requests = CutReply(b"COMMIT")
    with closing(connect(proxy)) as client:
        assert ask(client, b"INSERT\n") == b"INSERT\n"
        assert _is_closed_after(client, b"COMMIT\n")
    eventually(lambda: server.ended, why="the server's side is closed, too")
    assert server.received == [b"INSERT\n", b"COMMIT\n"]
    assert proxy.counts.cuts == 1


def test_a_cut_request_never_reaches_the_server(server: EchoServer, proxy: TcpProxy) -> None:
    proxy.requests = CutRequest(b"COMMIT")
    with closing(connect(proxy)) as client:
        assert ask(client, b"INSERT\n") == b"INSERT\n"
        assert _is_closed_after(client, b"COMMIT\n")
    eventually(lambda: server.ended, why="the server's side is closed, too")
    assert server.received == [b"INSERT\n"]


def test_cuts_happen_as_often_as_told_and_then_all_passes(proxy: TcpProxy) -> None:
    proxy.requests = CutReply(b"SET", times=2)
    for _ in range(2):
        with closing(connect(proxy)) as client:
            assert _is_closed_after(client, b"SET\n")
    with closing(connect(proxy)) as client:
        assert ask(client, b"SET\n") == b"SET\n"
    assert proxy.counts.cuts == 2


def test_a_pattern_is_found_when_the_network_cut_it_in_pieces(proxy: TcpProxy) -> None:
    proxy.requests = CutReply(b"LPUSH")
    with closing(connect(proxy)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece, forwarded in [(b"L", 1), (b"PU", 3), (b"S", 4)]:
            client.sendall(piece)
            eventually(partial(_has_forwarded, proxy, forwarded), why="the piece passes alone")
        assert _is_closed_after(client, b"H queue\n")
    assert proxy.counts.cuts == 1


def test_a_target_that_is_down_ends_the_connection(proxy: TcpProxy) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy.target = ("127.0.0.1", nobody.getsockname()[1])
        with pytest.raises(ConnectionError), closing(connect(proxy)) as client:
            ask(client, b"hello\n")
    assert proxy.counts.unreachable == 1


def test_leaving_ends_every_connection_and_every_wait(server: EchoServer) -> None:
    host, port = server.server_address[:2]
    with TcpProxy((str(host), port)) as proxy:
        client = connect(proxy)
        proxy.requests = Delay(3600)
        client.sendall(b"never\n")
        eventually(lambda: proxy.open_connections == 1, why="the connection is open")
    assert _is_closed_after(client, b"")
    client.close()
    assert server.received == []


def _is_closed_after(client: socket.socket, line: bytes) -> bool:
    """Whether the connection ends, orderly or not, without an answer to this."""
    try:
        return ask(client, line) == b""
    except ConnectionError:
        return True


def _has_forwarded(proxy: TcpProxy, length: int) -> bool:
    return proxy.counts.request_bytes == length
