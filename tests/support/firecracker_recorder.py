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
from itertools import pairwise
from pathlib import Path

PR_SET_NAME = 15


def main(arguments: list[str]) -> int:
    """Start the guest in a child, note its pid, and end, as the jailer does."""
    said = dict(pairwise(arguments))
    base = Path(said["--chroot-base-dir"])
    root = base / Path(said["--exec-file"]).name / said["--id"] / "root"
    json.loads((root / "config.json").read_text())
    (root / "run").mkdir(exist_ok=True)
    pid = os.fork()
    if pid:
        (root / "firecracker.pid").write_text(str(pid))
        return 0
    has_panic, is_mute = (base / "PANIC").exists(), (base / "MUTE").exists()
    calls = (root.parent / "calls").open("a", buffering=1)
    os.chroot(root)
    os.chdir("/")
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"firecracker", 0, 0, 0)
    if has_panic:
        print("Kernel panic - not syncing: no init found", flush=True)
        return 0
    print("hello", said["--id"], flush=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind("/run/elsewhere.socket" if is_mute else "/run/firecracker.socket")
    server.listen()
    metadata = b"{}"
    while True:
        connection, _ = server.accept()
        with connection:
            request = _request(connection)
            if request is None:
                continue
            method, path, body = request
            print(method, path, file=calls)
            if (method, path) == ("PUT", "/mmds"):
                metadata = body
            answers = {"/": json.dumps({"id": said["--id"], "state": "Running"}).encode()}
            _answer(
                connection,
                {**answers, "/mmds": metadata}.get(path, b"") if method == "GET" else b"",
            )
            if path == "/actions" and b"SendCtrlAltDel" in body:
                print("last words\nkici-agent-exit: 3", flush=True)
                return 0


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
