"""Celery's transport as the scaler uses it: the same messages, fewer clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from kombu.transport import redis as plain

from config.celery_settings import celery_configuration
from config.redis_transport import Transport, keep_clients

QUEUE = "kept-clients"


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    """An application that sends and reads with that transport."""
    keep_clients()
    with Celery("test", set_as_current=False) as made:
        made.conf.update(celery_configuration(redis_url, "test"))
        yield made


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every client that the library makes from now on."""
    found: list[object] = []
    create: Any = plain.Channel._create_client  # type: ignore[attr-defined]  # its types lack it

    def counted(channel: object, asynchronous: bool = False) -> object:
        found.append(create(channel, asynchronous=asynchronous))
        return found[-1]

    monkeypatch.setattr(plain.Channel, "_create_client", counted)
    return found


def _send(app: Celery, count: int) -> None:
    for number in range(count):
        app.send_task("nothing", kwargs={"number": number}, queue=QUEUE, ignore_result=True)


def _received(app: Celery, count: int) -> list[object]:
    with app.connection_for_read() as connection, connection.SimpleQueue(QUEUE) as queue:
        found = []
        for _ in range(count):
            message = queue.get(timeout=5)
            message.ack()
            found.append(message.payload[1]["number"])
        return found


def test_many_messages_take_one_client(app: Celery, made: list[object]) -> None:
    _send(app, 1)
    before = len(made)
    _send(app, 20)
    assert len(made) == before
    assert _received(app, 21) == [0, *range(20)]


def test_a_channel_whose_connections_were_dropped_gets_a_new_client(app: Celery) -> None:
    with app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        with channel.conn_or_acquire() as first:
            assert first.ping()
        channel._disconnect_pools()
        with channel.conn_or_acquire() as second:
            assert second.ping()
        assert first is not second


def test_addresses_are_shown_as_they_were_given(app: Celery, redis_url: str) -> None:
    with app.connection_for_write() as connection:
        assert isinstance(connection.transport, Transport)
        assert connection.as_uri(include_password=True).startswith(redis_url.split("?")[0])
