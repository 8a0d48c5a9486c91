"""The second version of Firecracker's metadata service, in a network of its own.

The network's kernel answers the frames that are for the service's address, as Firecracker's own
small network stack does. Standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import secrets
import struct
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP_WITHOUT_HEADER = 0x1002

IPV4, ARP = b"\x08\x00", b"\x08\x06"


class Mmds:
    """The service at an address, and the interface by which it is reached.

    Args:
        content: the document as it is now, as JSON.
    """

    def __init__(self, address: str, content: Callable[[], bytes]) -> None:
        self._address = bytes(int(part) for part in address.split("."))
        before = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network of the service's own")
        try:
            # An interface and a socket stay in the network that they were made in.
            self.tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
            wanted = struct.pack("16sH22x", b"mmds0", IFF_TAP_WITHOUT_HEADER)
            fcntl.ioctl(self.tap, TUNSETIFF, wanted)
            for words in (
                f"addr add {address}/32 dev mmds0",
                "link set mmds0 up",
                "route add default dev mmds0",
            ):
                subprocess.run(["ip", *words.split()], check=True)
            server = _Server((address, 80), _handler(content))
        finally:
            assert libc.setns(before, CLONE_NEWNET) == 0
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def is_for(self, frame: bytes) -> bool:
        """Whether a frame of the guest is for the service and for nobody else."""
        kind = frame[12:14]
        if kind == ARP:
            return frame[38:42] == self._address
        return kind == IPV4 and frame[30:34] == self._address

    def is_from(self, frame: bytes) -> bool:
        """Whether a frame is the service's answer; what else a kernel says is for nobody."""
        kind = frame[12:14]
        if kind == ARP:
            return frame[28:32] == self._address
        return kind == IPV4 and frame[26:30] == self._address


class _Server(ThreadingTCPServer):
    """Without the look-up of its own name that an HTTP server begins with."""

    daemon_threads = True


def _handler(content: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    sessions: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        """A session first, and then what the document has at a path."""

        def do_PUT(self) -> None:
            """Give out a session."""
            seconds = self.headers.get("X-metadata-token-ttl-seconds", "")
            if self.path != "/latest/api/token" or not seconds.isdecimal():
                self._answer(400, b"no session")
                return
            session = secrets.token_hex()
            sessions.add(session)
            self._answer(200, session.encode())

        def do_GET(self) -> None:
            """Say what is there, to whom has a session."""
            if self.headers.get("X-metadata-token") not in sessions:
                self._answer(401, b"no valid token")
                return
            found: Any = json.loads(content())
            for part in self.path.strip("/").split("/"):
                found = found.get(part) if isinstance(found, dict) else None
            if found is None:
                self._answer(404, b"not found")
                return
            is_table = isinstance(found, dict) and "json" not in self.headers.get("Accept", "")
            text = "\n".join(found) if is_table else json.dumps(found)
            self._answer(200, text.encode())

        def log_message(self, *_about: object) -> None:
            """What is asked is no matter of the console."""

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
