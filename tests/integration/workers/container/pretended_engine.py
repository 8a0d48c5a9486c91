"""A process that answers as Docker does and runs nothing: for what needs no real containers.

Its containers are entries of a table. One that is started prints `hello AGENT` and takes its
token file away, as an agent would; it ends when a test says so. What goes wrong is said through
`/test/...`, which no runtime has.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import socketserver
import struct
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.waiting import eventually

Answer = tuple[int, Any]
Query = Mapping[str, str]

TOKEN = "/run/kici-agent/token"


@dataclass
class Pretended:
    """One container."""

    id: str
    name: str
    body: dict[str, Any]
    status: str = "created"
    exit_code: int = 0
    lines: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    created: float = field(default_factory=time.time)

    def inspected(self) -> dict[str, Any]:
        """It as an inspection shows it."""
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "State": {"Status": self.status, "ExitCode": self.exit_code, "Error": ""},
            "Config": {**self.body, "Tty": False, "User": ""},
            "HostConfig": self.body.get("HostConfig", {}),
            "NetworkSettings": {"Networks": {}},
        }

    def listed(self) -> dict[str, Any]:
        """It as an entry of a list."""
        return {
            "Id": self.id,
            "Names": [f"/{self.name}"],
            "Labels": self.body.get("Labels", {}),
            "State": self.status,
            "Created": int(self.created),
        }


@dataclass
class Killing:
    """The sender of a request is killed, before it is done or after."""

    left: int
    """Requests that go through before that one."""
    is_done: bool


class Table:
    """All containers, volumes and images; and what goes wrong next."""

    def __init__(self) -> None:
        self.containers: dict[str, Pretended] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.images = {"agents/linux:1"}
        self.faults: dict[str, str] = {}
        self.pulls: list[str] = []
        self.started: list[str] = []
        self.killing: Killing | None = None
        self.held: list[Callable[[], Answer]] = []
        """What was asked for by somebody who is gone, and has not happened yet."""
        self.lock = Lock()
        self._numbers = iter(range(1 << 30))

    def answer(self, method: str, path: str, query: Query, body: bytes) -> Answer:
        """What Docker would answer; a string is sent as it is, bytes too."""
        for pattern, handler in _ROUTES.items():
            if found := re.fullmatch(pattern, f"{method} {path}"):
                with self.lock:
                    result: Answer = handler(self, query, body, *map(unquote, found.groups()))
                    return result
        return 404, {"message": f"page not found: {method} {path}"}

    def let_the_late_happen(self) -> None:
        """Do what is held back."""
        while self.held:
            self.held.pop()()

    def find(self, key: str) -> Pretended | None:
        """By name or id."""
        named = self.containers.get(key)
        return named or next((c for c in self.containers.values() if c.id == key), None)

    def new_id(self) -> str:
        """An id like Docker's."""
        return f"{next(self._numbers):064x}"


def _version(_table: Table, _query: Query, _body: bytes) -> Answer:
    return 200, {"ApiVersion": "1.41", "Version": "0", "Components": [{"Name": "Engine"}]}


def _info(_table: Table, _query: Query, _body: bytes) -> Answer:
    return 200, {"NCPU": 4, "LoggingDriver": "json-file", "SecurityOptions": []}


def _list(table: Table, query: Query, _body: bytes) -> Answer:
    wanted = [
        each.split("=", 1) for each in json.loads(query.get("filters", "{}")).get("label", [])
    ]
    found = [
        each.listed()
        for each in table.containers.values()
        if all(each.body.get("Labels", {}).get(key) == value for key, value in wanted)
    ]
    return 200, found


def _create(table: Table, query: Query, body: bytes) -> Answer:
    name, asked = query["name"], json.loads(body)
    if name in table.containers:
        return 409, {"message": f"Conflict. The container name {name} is already in use"}
    if asked["Image"] not in table.images:
        return 404, {"message": f"No such image: {asked['Image']}"}
    table.containers[name] = Pretended(table.new_id(), name, asked)
    return 201, {"Id": table.containers[name].id, "Warnings": []}


def _inspect(table: Table, _query: Query, _body: bytes, key: str) -> Answer:
    found = table.find(key)
    return (200, found.inspected()) if found else _no_such(key)


def _start(table: Table, _query: Query, _body: bytes, key: str) -> Answer:
    found = table.find(key)
    if found is None:
        return _no_such(key)
    if found.status == "running":
        return 304, ""
    environment = dict(each.split("=", 1) for each in found.body.get("Env", []))
    found.status = "running"
    table.started.append(found.name)
    found.lines.append(f"hello {environment.get('KICI_AGENT_ID')}")
    found.files.pop(TOKEN, None)
    return 204, ""


def _stop(table: Table, _query: Query, _body: bytes, key: str) -> Answer:
    found = table.find(key)
    if found is None:
        return _no_such(key)
    found.status, found.exit_code = "exited", 143
    return 204, ""


def _remove(table: Table, _query: Query, _body: bytes, key: str) -> Answer:
    found = table.find(key)
    if found is None:
        return _no_such(key)
    del table.containers[found.name]
    return 204, ""


def _put_files(table: Table, query: Query, body: bytes, key: str) -> Answer:
    found = table.find(key)
    if found is None:
        return _no_such(key)
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        for each in archive.getmembers():
            file = archive.extractfile(each) if each.isfile() else None
            if file is not None:
                found.files[query["path"] + each.name] = file.read()
    return 200, ""


def _get_file(table: Table, query: Query, _body: bytes, key: str) -> Answer:
    found = table.find(key)
    if found is None or query["path"] not in found.files:
        return _no_such(query["path"])
    content, data = io.BytesIO(), found.files[query["path"]]
    with tarfile.open(fileobj=content, mode="w") as archive:
        entry = tarfile.TarInfo(Path(query["path"]).name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return 200, content.getvalue()


def _logs(table: Table, query: Query, _body: bytes, key: str) -> Answer:
    found = table.find(key)
    if found is None:
        return _no_such(key)
    text = "".join(f"{line}\n" for line in found.lines[-int(query["tail"]) :]).encode()
    return 200, struct.pack(">BxxxL", 1, len(text)) + text if text else b""


def _image(table: Table, _query: Query, _body: bytes, name: str) -> Answer:
    if name not in table.images:
        return 404, {"message": f"No such image: {name}"}
    return 200, {"Id": f"sha256:{name}", "Config": {"User": ""}}


def _pull(table: Table, query: Query, _body: bytes) -> Answer:
    name = f"{query['fromImage']}:{query['tag']}"
    table.pulls.append(name)
    if "missing" in name:
        return 404, {"message": f"manifest for {name} not found: manifest unknown"}
    table.images.add(name)
    events = [
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 1, "total": 2}},
        {"status": "Download complete", "id": "a"},
    ]
    return 200, "".join(f"{json.dumps(each)}\r\n" for each in events)


def _make_volume(table: Table, _query: Query, body: bytes) -> Answer:
    asked = json.loads(body)
    return 201, table.volumes.setdefault(asked["Name"], asked)


def _list_volumes(table: Table, _query: Query, _body: bytes) -> Answer:
    return 200, {"Volumes": list(table.volumes.values())}


def _remove_volume(table: Table, _query: Query, _body: bytes, name: str) -> Answer:
    return (204, "") if table.volumes.pop(name, None) else _no_such(name)


def _end(table: Table, query: Query, _body: bytes) -> Answer:
    for each in table.containers.values():
        if query["agent"] in each.name and each.status == "running":
            each.lines.append("last words")
            each.status, each.exit_code = "exited", int(query["code"])
    return 200, {}


def _tell(table: Table, _query: Query, _body: bytes) -> Answer:
    told = {
        each.name: {
            "status": each.status,
            "files": {key: value.decode(errors="replace") for key, value in each.files.items()},
            "inspected": each.inspected(),
        }
        for each in table.containers.values()
    }
    return 200, {"containers": told, "pulls": table.pulls, "started": table.started}


def _stranger(table: Table, query: Query, _body: bytes) -> Answer:
    table.containers[query["name"]] = Pretended(table.new_id(), query["name"], {}, "running")
    return 200, {}


def _fail(table: Table, query: Query, _body: bytes) -> Answer:
    table.faults[query["request"]] = query["how"]
    return 200, {}


def _kill(table: Table, query: Query, _body: bytes) -> Answer:
    number = int(query["number"])
    table.killing = Killing(number, query["done"] == "yes") if number else None
    return 200, {}


def _no_such(what: str) -> Answer:
    return 404, {"message": f"No such container: {what}"}


_ROUTES: dict[str, Any] = {
    "GET /version": _version,
    "GET /info": _info,
    "GET /containers/json": _list,
    "POST /containers/create": _create,
    "GET /containers/([^/]+)/json": _inspect,
    "POST /containers/([^/]+)/start": _start,
    "POST /containers/([^/]+)/stop": _stop,
    "DELETE /containers/([^/]+)": _remove,
    "PUT /containers/([^/]+)/archive": _put_files,
    "GET /containers/([^/]+)/archive": _get_file,
    "GET /containers/([^/]+)/logs": _logs,
    "GET /images/(.+)/json": _image,
    "POST /images/create": _pull,
    "POST /volumes/create": _make_volume,
    "GET /volumes": _list_volumes,
    "DELETE /volumes/(.+)": _remove_volume,
    "POST /test/end": _end,
    "POST /test/tell": _tell,
    "POST /test/stranger": _stranger,
    "POST /test/fail": _fail,
    "POST /test/kill": _kill,
}


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    table: Table

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):
            super().handle_one_request()

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        path = re.sub(r"^/v[0-9.]+", "", parts.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        how = self._fault(path)
        killing = self._due_killing(path)
        act = partial(self.table.answer, self.command, path, query, body)
        if killing is not None:
            if killing.is_done:
                act()
            self._kill_sender()
        elif how == "refused":
            self._send(500, {"message": "injected: not done"})
        elif how == "late":
            # The sender sees its connection break, and what it asked for happens all the same.
            self.table.held.append(act)
            self._hang_up()
        elif how == "lost":
            act()
            self._send(500, {"message": "injected: done"})
        elif how == "before the late one":
            answer = act()
            self.table.let_the_late_happen()
            self._send(*answer)
        elif how == "after the late one":
            self.table.let_the_late_happen()
            self._send(*act())
        else:
            self._send(*act())

    def _fault(self, path: str) -> str | None:
        for request in list(self.table.faults):
            if re.search(request, f"{self.command} {path}"):
                return self.table.faults.pop(request)
        return None

    def _due_killing(self, path: str) -> Killing | None:
        with self.table.lock:
            killing = self.table.killing
            if killing is None or path.startswith("/test/"):
                return None
            killing.left -= 1
            if killing.left > 0:
                return None
            self.table.killing = None
            return killing

    def _kill_sender(self) -> None:
        said = self.connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        os.kill(struct.unpack("3i", said)[0], signal.SIGKILL)
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, content: Any) -> None:
        """A text is a stream of events, which a runtime sends as they happen: in chunks."""
        if isinstance(content, str) and content:
            self._send_chunk(status, content.encode())
            return
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        sent = text.encode() if isinstance(text, str) else text
        self.send_response_only(status)
        if self.path.endswith("archive") or "/archive?" in self.path:
            self.send_header("X-Docker-Container-Path-Stat", "e30=")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def _send_chunk(self, status: int, sent: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(f"{len(sent):x}\r\n".encode() + sent + b"\r\n0\r\n\r\n")


class _OverSocket(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


class PretendedEngine:
    """The process, as a test speaks to it."""

    def __init__(self, socket_path: Path) -> None:
        self.socket = socket_path

    @property
    def options(self) -> dict[str, object]:
        """A scaler's options for it; there is no network to isolate anything on."""
        return {"socketPath": str(self.socket), "networkIsolation": False}

    def fail(self, request: str, how: str) -> None:
        """Let the next request that matches (`POST .*/start`) go wrong.

        It may be `refused`, `lost` (done, and not said to be) or `late` (not answered, and done
        when a later one says so, which comes `before the late one` or `after the late one`).
        """
        self._ask("/test/fail", request=request, how=how)

    def kill(self, number: int, *, is_done: bool) -> None:
        """Kill whoever sends the request of that number, from 1 on."""
        self._ask("/test/kill", number=str(number), done="yes" if is_done else "no")

    def spare(self) -> None:
        """Kill nobody any more."""
        self._ask("/test/kill", number="0", done="no")

    def end(self, agent_id: str, code: int) -> None:
        """Let an agent's container end by itself."""
        self._ask("/test/end", agent=agent_id, code=str(code))

    def add_stranger(self, name: str) -> None:
        """Let somebody else run a container of that name."""
        self._ask("/test/stranger", name=name)

    def told(self) -> dict[str, Any]:
        """Everything it holds."""
        return self._ask("/test/tell")

    def containers(self, agent_id: str) -> list[dict[str, Any]]:
        """The containers of an agent."""
        found: Mapping[str, dict[str, Any]] = self.told()["containers"]
        return [each for name, each in found.items() if agent_id in name]

    def answers(self) -> bool:
        """Whether it serves yet; its socket is there a moment before anybody listens on it."""
        try:
            self.told()
        except (OSError, HTTPException):
            return False
        return True

    def _ask(self, path: str, **query: str) -> dict[str, Any]:
        from urllib.parse import urlencode

        connection = _OverSocket(self.socket)
        connection.request("POST", f"{path}?{urlencode(query)}")
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        connection.close()
        return answer


@contextmanager
def pretended_engine(folder: Path) -> Iterator[PretendedEngine]:
    """Run one in a process of its own, so that tests may fork."""
    socket_path = folder / "engine.sock"
    pid = os.fork()
    if pid == 0:
        try:
            handler = type("Handler", (_Handler,), {"table": Table()})
            with _Server(str(socket_path), handler) as server:
                server.serve_forever()
        finally:
            os._exit(1)
    try:
        made = PretendedEngine(socket_path)
        eventually(made.answers)
        yield made
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
