"""Ports are free when taken, and stay the same when they can."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kici_scaler.embedded.errors import PortInUse
from kici_scaler.embedded.ports import LOOPBACK, PortBook, free_port, is_free, reached_at


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def book(tmp_path: Path) -> PortBook:
    return PortBook(tmp_path / "ports.json")


def test_a_taken_port_is_not_free(taken: int) -> None:
    assert not is_free(taken)
    assert is_free(free_port())


def test_a_port_is_kept_over_restarts(book: PortBook, tmp_path: Path) -> None:
    port = book.take("redis")
    assert PortBook(tmp_path / "ports.json").take("redis") == port


def test_a_kept_port_that_somebody_took_is_replaced(tmp_path: Path, taken: int) -> None:
    (tmp_path / "ports.json").write_text(f'{{"redis": {taken}}}')
    assert PortBook(tmp_path / "ports.json").take("redis") != taken


def test_an_unreadable_book_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text('{"redis": ')
    assert PortBook(tmp_path / "ports.json").take("redis")


def test_a_port_asked_for_by_number_is_never_replaced(book: PortBook, taken: int) -> None:
    with pytest.raises(PortInUse, match=rf"port {taken} on 127\.0\.0\.1, meant for flower") as no:
        book.take_exactly("flower", taken, LOOPBACK, "--flower-port")
    assert "--flower-port" in no.value.hint
    port = free_port()
    assert book.take_exactly("flower", port, LOOPBACK, "--flower-port") == port


def test_a_server_on_all_addresses_is_reached_by_loopback() -> None:
    assert [reached_at(host) for host in ("0.0.0.0", "::", "10.0.0.7")] == [
        "127.0.0.1",
        "[::1]",
        "10.0.0.7",
    ]
