"""What Redis tells about an installation: version, durability, eviction, mutex, consumers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import redis

from config.celery_settings import CONTROL_KIND, CONTROL_QUEUES, KEY_PREFIX, queues_for
from kici_scaler.broker.hints import sender, short_lived_client
from kici_scaler.domain.diagnosis import Health, Row
from kici_scaler.service.checkup import Place, skew

OLDEST: Final = (6, 2)
"""What the broker's transport needs."""
INSPECT_SECONDS: Final = 3.0
"""For the answers of workers; a busy one answers as well, from its main process."""


def server(url: str) -> Iterator[Row]:
    """The server itself.

    Raises:
        redis.RedisError: it cannot be asked.
    """
    client = short_lived_client(url)
    try:
        facts: Mapping[str, Any] = client.info()
        yield _version(facts)
        yield _durability(facts)
        yield _eviction(facts)
        yield _mutex(client)
        begun, at = time.monotonic(), time.time()
        seconds, micros = client.time()
        yield skew("redis-clock", seconds + micros / 1e6 - at, time.monotonic() - begun, "Redis'")
    finally:
        client.close()


def _version(facts: Mapping[str, Any]) -> Row:
    text = str(facts.get("redis_version", "0"))
    parts = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    recent = parts >= OLDEST
    return Row(
        "redis", Health.PASS if recent else Health.FAIL,
        f"version {text}{'' if recent else '; 6.2 or newer is needed'}", {"version": text},
    )  # fmt: skip


def _durability(facts: Mapping[str, Any]) -> Row:
    durable = str(facts.get("aof_enabled", 0)) == "1"
    return Row(
        "redis-append-only", Health.PASS if durable else Health.WARN,
        "on" if durable
        else "off: after a restart hints come again from the database, live log lines do not",
        {"appendOnly": durable},
    )  # fmt: skip


def _eviction(facts: Mapping[str, Any]) -> Row:
    policy, limit = str(facts.get("maxmemory_policy", "?")), int(facts.get("maxmemory", 0))
    bad = policy != "noeviction" and limit > 0
    return Row(
        "redis-eviction", Health.FAIL if bad else Health.PASS,
        f"maxmemory-policy {policy}" + (": it would drop queues; set noeviction" if bad else ""),
        {"policy": policy, "maxmemory": limit},
    )  # fmt: skip


def _mutex(client: redis.Redis) -> Row:
    """Set and release as a reservation does, on a key of its own so that nothing waits for it."""
    key, token = f"{KEY_PREFIX}doctor:{secrets.token_hex(8)}", secrets.token_hex(8)
    got = bool(client.set(key, token, nx=True, px=3_000))
    again = bool(client.set(key, token, nx=True, px=3_000))
    client.delete(key)
    works = got and not again
    return Row(
        "redis-mutex", Health.PASS if works else Health.FAIL,
        "works" if works else "a second holder got it", {},
    )  # fmt: skip


def queues(url: str, places: Iterable[Place]) -> Iterator[Row]:
    """Queues that somebody should consume, and whether somebody does.

    Raises:
        redis.RedisError: the broker cannot be asked.
    """
    wanted = dict.fromkeys(CONTROL_QUEUES, CONTROL_KIND)
    for place in places:
        for queue in queues_for(place.backend_type, place.machine_id or ""):
            wanted[queue] = place.backend_type
    consumed = _consumed(url)
    client = short_lived_client(url)
    try:
        for queue, kind in wanted.items():
            length = int(client.llen(f"{KEY_PREFIX}{queue}"))
            by = consumed.get(queue, 0)
            yield Row(
                f"queue:{queue}", Health.PASS if by else Health.FAIL,
                f"{by} workers, {length} messages" if by
                else f"no worker consumes it, {length} messages wait: `kici-scaler worker {kind}`",
                {"workers": by, "messages": length},
            )  # fmt: skip
    finally:
        client.close()


def _consumed(url: str) -> dict[str, int]:
    """How many workers say that they consume each queue."""
    app = sender(url, "doctor")
    try:
        answers = app.control.inspect(timeout=INSPECT_SECONDS).active_queues() or {}
    finally:
        app.close()
    counts: dict[str, int] = {}
    for known in answers.values():
        for queue in known:
            counts[queue["name"]] = counts.get(queue["name"], 0) + 1
    return counts
