"""Small servers that answer a webhook as a test says, byte by byte if need be."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Talk = Callable[[socket.socket, "Host"], None]
"""What the server does with a connection; it is closed afterwards."""

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass
class Host:
    """A listening server and what it heard."""

    port: int
    over: threading.Event = field(default_factory=threading.Event)
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=b"


def read_request(connection: socket.socket) -> bytes:
    """One request with its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return data
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def answering(answer: bytes) -> Talk:
    """Reads the request, then says this."""

    def talk(connection: socket.socket, host: Host) -> None:
        host.requests.append(read_request(connection))
        connection.sendall(answer)

    return talk


@contextlib.contextmanager
def serving(talk: Talk, *, tls: ssl.SSLContext | None = None) -> Iterator[Host]:
    """Serve on a free port of the loopback until the end of the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    host = Host(listener.getsockname()[1])

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            host.connections += 1
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if tls is None:
                talk(connection, host)
            else:
                with tls.wrap_socket(connection, server_side=True) as closed:
                    talk(closed, host)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield host
    finally:
        host.over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
