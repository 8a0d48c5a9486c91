"""Plays jailer and Firecracker where there is no KVM: one program, run as the jailer.

It takes the jailer's arguments, changes its root to the jail, calls itself `firecracker`, answers
on the API's socket and writes down which calls it was asked (never what they carried). Its guest
says hello, and has last words when Ctrl-Alt-Del is pressed. Standard library only.

`PANIC` beside the jails makes the next guests panic, `MUTE` makes their API answer nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TextIO

PR_SET_NAME = 15


@dataclass(frozen=True)
class Jail:
    """What the jailer's arguments say."""

    base: Path
    agent_id: str
    program: str
    uid: int
    gid: int

    @classmethod
    def of(cls, arguments: list[str]) -> Jail:
        """The jail in those arguments."""
        said = dict(pairwise(arguments))
        program = Path(said["--exec-file"]).name
        base = Path(said["--chroot-base-dir"])
        return cls(base, said["--id"], program, int(said["--uid"]), int(said["--gid"]))

    @property
    def root(self) -> Path:
        """What its process sees as `/`."""
        return self.base / self.program / self.agent_id / "root"

    def begin(self) -> bool:
        """Whether this is the microVM's own process; the other one is the jailer, and ends."""
        json.loads((self.root / "config.json").read_text())
        (self.root / "run").mkdir(exist_ok=True)
        pid = os.fork()
        if pid:
            (self.root / f"{self.program}.pid").write_text(str(pid))
        return pid == 0

    def calls(self) -> TextIO:
        """Where the calls that were asked are written down."""
        return (self.root.parent / "calls").open("a", buffering=1)

    def enter(self) -> None:
        """Have the jail as the root, and the program's name."""
        os.chroot(self.root)
        os.chdir("/")
        ctypes.CDLL(None).prctl(PR_SET_NAME, self.program.encode(), 0, 0, 0)


class Api:
    """Answers on the API's socket, one call after the other."""

    def __init__(self, agent_id: str, calls: TextIO) -> None:
        self.metadata = b"{}"
        self._about = json.dumps({"id": agent_id, "state": "Running"}).encode()
        self._calls = calls

    def serve(self, path: str, ask_to_end: Callable[[], None]) -> None:
        """Answer for ever; `ask_to_end` is what Ctrl-Alt-Del does."""
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()
        while True:
            connection, _ = server.accept()
            with connection:
                request = _request(connection)
                if request is None:
                    continue
                method, where, body = request
                print(method, where, file=self._calls)
                if (method, where) == ("PUT", "/mmds"):
                    self.metadata = body
                there = {"/": self._about, "/mmds": self.metadata} if method == "GET" else {}
                _answer(connection, there.get(where, b""))
            if where == "/actions" and b"SendCtrlAltDel" in body:
                ask_to_end()


def main(arguments: list[str]) -> int:
    """Start the guest in a child, note its pid, and end, as the jailer does."""
    jail = Jail.of(arguments)
    if not jail.begin():
        return 0
    has_panic, is_mute = (jail.base / "PANIC").exists(), (jail.base / "MUTE").exists()
    calls = jail.calls()
    jail.enter()
    if has_panic:
        print("Kernel panic - not syncing: no init found", flush=True)
        return 0
    print("hello", jail.agent_id, flush=True)
    place = "/run/elsewhere.socket" if is_mute else "/run/firecracker.socket"
    Api(jail.agent_id, calls).serve(place, _say_last_words)
    return 0


def _say_last_words() -> None:
    print("last words\nkici-agent-exit: 3", flush=True)
    raise SystemExit(0)


def _request(connection: socket.socket) -> tuple[str, str, bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1 << 16)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:])
    while len(body) < int(fields.get("content-length", "0")):
        body += connection.recv(1 << 16)
    method, path, _ = lines[0].split(" ")
    return method, path, body


def _answer(connection: socket.socket, body: bytes) -> None:
    head = f"HTTP/1.1 200 \r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode() + body)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
