"""Lifecycle events are handed over in order, each at least once, whatever Redis does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from kici_scaler.broker.event_stream import STREAM, EventStream
from kici_scaler.broker.hints import sender, short_lived_client
from kici_scaler.service import publish
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import events
from kici_scaler.store.events import EventType, NewEvent
from tests.support.rows import Rows
from tests.support.waiting import free_port


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with contextlib.closing(redis.Redis.from_url(redis_url)) as found:
        yield found


def _record(rows: Rows, *details: str) -> None:
    rows.call(
        events.record,
        [NewEvent(EventType.PROVISIONING, "agent", "job", "run", each, 1234) for each in details],
    )


def _publish(runtime: Runtime, rows: Rows, stream: EventStream) -> int | None:
    rows.execute("UPDATE duties SET ticked_at = ticked_at - interval '5 s'")
    return publish.publish(runtime, stream)


def _told(client: redis.Redis) -> list[str]:
    entries: Any = client.xrange(STREAM)
    return [fields[b"detail"].decode() for _, fields in entries]


def test_events_come_in_order_with_run_and_job(
    runtime: Runtime, rows: Rows, client: redis.Redis, redis_url: str
) -> None:
    with sender(redis_url, "test") as app:
        stream = EventStream(client, app)
        _record(rows, "one", "two")
        assert _publish(runtime, rows, stream) == 2
        _record(rows, "three")
        assert _publish(runtime, rows, stream) == 1
        assert _publish(runtime, rows, stream) == 0
    assert _told(client) == ["one", "two", "three"]
    entries: Any = client.xrange(STREAM, count=1)
    ((_, fields),) = entries
    assert fields[b"eventType"] == b"scaler.provisioning"
    assert (fields[b"agentId"], fields[b"jobId"], fields[b"runId"]) == (b"agent", b"job", b"run")
    assert fields[b"timestampMs"] == b"1234"


def test_what_redis_did_not_take_comes_again_and_nothing_twice(
    runtime: Runtime, rows: Rows, client: redis.Redis, redis_url: str
) -> None:
    nowhere = short_lived_client(f"redis://127.0.0.1:{free_port()}/0")
    with sender(redis_url, "test") as app, contextlib.closing(nowhere):
        _record(rows, "one", "two")
        assert _publish(runtime, rows, EventStream(nowhere, app)) == 0
        stream = EventStream(client, app)
        assert _publish(runtime, rows, stream) == 2
        # Died between handing over and noting it.
        rows.execute("UPDATE duties SET reached = 0")
        assert _publish(runtime, rows, stream) == 2
    assert _told(client) == ["one", "two"]


def test_a_dispatchers_task_gets_each_batch(
    runtime: Runtime, rows: Rows, client: redis.Redis, redis_url: str
) -> None:
    with sender(redis_url, "test") as app:
        _record(rows, "one", "two")
        assert _publish(runtime, rows, EventStream(client, app, "ci.on_events", "ci")) == 2
    queues = [key for key in client.keys("*ci") if client.type(key) == b"list"]
    assert sum(int(str(client.llen(key))) for key in queues) == 1


def test_a_batch_of_which_some_were_appended_adds_the_others(
    runtime: Runtime, rows: Rows, client: redis.Redis, redis_url: str
) -> None:
    with sender(redis_url, "test") as app:
        stream = EventStream(client, app)
        _record(rows, "one", "two")
        assert _publish(runtime, rows, stream) == 2
        _record(rows, "three")
        rows.execute("UPDATE duties SET reached = 0")
        assert _publish(runtime, rows, stream) == 3
    assert _told(client) == ["one", "two", "three"]


def test_a_server_that_takes_no_more_takes_none_of_a_batch(
    runtime: Runtime, rows: Rows, client: redis.Redis, redis_url: str
) -> None:
    """Had it taken a later one alone, those before it could never be appended."""
    with sender(redis_url, "test") as app:
        stream = EventStream(client, app)
        _record(rows, "one", "two")
        client.config_set("maxmemory", 1)
        try:
            assert _publish(runtime, rows, stream) == 0
        finally:
            client.config_set("maxmemory", 0)
        assert _told(client) == []
        assert _publish(runtime, rows, stream) == 2
    assert _told(client) == ["one", "two"]


def test_more_than_one_batch_is_handed_over_in_one_tick_up_to_a_bound(
    runtime: Runtime,
    rows: Rows,
    client: redis.Redis,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publish, "BATCH", 2)
    monkeypatch.setattr(publish, "MOST_IN_ONE_TICK", 6)
    told = [str(number) for number in range(7)]
    with sender(redis_url, "test") as app:
        stream = EventStream(client, app)
        _record(rows, *told)
        assert _publish(runtime, rows, stream) == 6
        assert _publish(runtime, rows, stream) == 1
    assert _told(client) == told
