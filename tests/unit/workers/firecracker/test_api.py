"""Firecracker's API on a Unix socket, against a server that says what it is told to say."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.harness import soon
from workers.contract import Deadline
from workers.firecracker.api import FirecrackerApi, FirecrackerApiError


@contextmanager
def _answering(path: Path, status: str, body: str = "") -> Iterator[list[bytes]]:
    """A server that gives one answer to whatever it is asked; what it was asked."""
    path.parent.mkdir(parents=True)
    asked: list[bytes] = []
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    short = path.relative_to(here) if path.is_relative_to(here) else path
    listener.bind(str(short))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                asked.append(_whole(connection))
                head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body.encode())}\r\n\r\n"
                connection.sendall((head + body).encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _whole(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    wanted = int(fields.get(b"content-length", b"0"))
    while len(body) < wanted:
        piece = connection.recv(1 << 16)
        data, body = data + piece, body + piece
    return data


def test_metadata_goes_as_json_with_its_length_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "run" / "s"
    with _answering(path, "204 No Content") as asked:
        FirecrackerApi(path).put_metadata({"latest": {"name": "grün"}}, soon())

    head, _, body = b"".join(asked).partition(b"\r\n\r\n")
    assert head.startswith(b"PUT /mmds HTTP/1.1\r\n")
    assert b"content-type: application/json" in head.lower()
    assert f"content-length: {len(body)}".encode() in head.lower()
    assert "grün".encode() in body


def test_a_cleared_document_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "run" / "s"
    with _answering(path, "204 No Content") as asked:
        FirecrackerApi(path).clear_metadata(soon())

    assert b'{"latest": {"meta-data": {}}}' in asked[0]


def test_a_refusal_tells_path_status_and_what_was_said(tmp_path: Path) -> None:
    path = tmp_path / "run" / "s"
    refused = '{"fault_message": "no keyboard"}'
    with _answering(path, "400 Bad Request", refused), pytest.raises(FirecrackerApiError) as said:
        FirecrackerApi(path).ask_to_end(soon())

    assert (said.value.path, said.value.status) == ("/actions", 400)
    assert "no keyboard" in said.value.body
    assert "no keyboard" in str(said.value)


def test_without_an_answer_there_is_no_status(tmp_path: Path) -> None:
    with pytest.raises(FirecrackerApiError) as said:
        FirecrackerApi(tmp_path / "nothing" / "s").describe(soon())

    assert said.value.status is None


def test_what_it_says_of_itself_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run" / "s"
    with _answering(path, "200 OK", '{"id": "a", "state": "Running"}') as asked:
        api = FirecrackerApi(path)
        assert api.describe(soon()) == {"id": "a", "state": "Running"}
        assert api.is_there(soon())

    assert asked[0].startswith(b"GET / HTTP/1.1\r\n")


def test_a_socket_with_a_long_path_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 100) / "run"
    monkeypatch.chdir(tmp_path)
    (tmp_path / ("x" * 100)).mkdir()
    monkeypatch.chdir(tmp_path / ("x" * 100))
    path = folder / "s"
    with _answering(path, "200 OK", "{}"):
        assert FirecrackerApi(path).is_there(soon())


def test_waiting_ends_when_the_time_is_over(tmp_path: Path) -> None:
    assert not FirecrackerApi(tmp_path / "s").wait(soon(), seconds=0.05, every=0.01)
    assert not FirecrackerApi(tmp_path / "s").wait(Deadline.after(0))
