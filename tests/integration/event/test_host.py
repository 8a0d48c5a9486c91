"""The worker itself: rows in, events out to real receivers and a real broker."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from standardwebhooks.webhooks import Webhook

from config.settings import Settings
from kici_scaler.broker.hints import sender
from kici_scaler.broker.task_names import ROUTE_EVENT
from kici_scaler.errors import InvalidInput
from kici_scaler.sealing import add_key, ensure_keys
from kici_scaler.service import claim, router
from tests.integration.event.conftest import DOWN, UP, Cloud
from tests.integration.event.hosts import NO_CONTENT, Host, answering, read_request, serving
from tests.support.waiting import eventually, free_port
from workers.event.codes import SealedCodes
from workers.event.host import EventHost
from workers.event.router import NotPublished, celery_publisher

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


def unpublished(_: Mapping[str, object]) -> None:
    raise NotPublished("no broker in this test")


@contextmanager
def worker(
    cloud: Cloud, folder: Path, *targets: str, publish: Any = unpublished
) -> Iterator[EventHost]:
    """A worker that may reach this machine, and has secrets for these targets."""
    keys = folder / "keys.json"
    ensure_keys(keys)
    settings = Settings.model_validate(
        {
            "seal_keys_path": keys,
            "webhook_secrets": json.dumps(dict.fromkeys(targets, SECRET)),
            "webhook_allowed_networks": "127.0.0.0/8",
            "orchestrator_url": "wss://gateway.test/v1/agents",
            "installation_id": "tested",
        }
    )
    host = EventHost(cloud.runtime, settings, publish)
    try:
        yield host
    finally:
        host.close()


def event_in(request: bytes) -> dict[str, Any]:
    """The verified event of a request."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")[1:]
    found: dict[str, Any] = Webhook(SECRET).verify(
        body, dict(line.split(": ", 1) for line in lines)
    )
    return found


def test_a_reserved_provision_becomes_a_signed_event_with_a_code_that_works(
    cloud: Cloud, tmp_path: Path
) -> None:
    with serving(answering(NO_CONTENT)) as host, worker(cloud, tmp_path, host.url) as event_host:
        agent = cloud.reserved(host.url)
        event_host.open()
        eventually(lambda: cloud.state(agent) == "booting")
        (request,) = host.requests
    event = event_in(request)
    assert event["source"] == "/kici-scaler/tested"
    assert event["data"]["agentId"] == agent
    assert event["data"]["orchestratorUrl"] == "wss://gateway.test/v1/agents"
    found = claim.redeem(cloud.runtime, event["data"]["claimCode"], address="")
    assert isinstance(found, claim.Redeemed)


def test_both_events_reach_the_target_in_order(cloud: Cloud, tmp_path: Path) -> None:
    with serving(answering(NO_CONTENT)) as host, worker(cloud, tmp_path, host.url) as event_host:
        agent = cloud.reserved(host.url)
        event_host.starts.prime()
        eventually(lambda: cloud.state(agent) == "booting")
        cloud.end(agent)
        event_host.destroys.prime()
        eventually(lambda: cloud.state(agent) is None)
        events = [event_in(each) for each in host.requests]
    assert [each["type"].rpartition(".")[2] for each in events] == ["scale-up", "scale-down"]
    assert len({each["id"] for each in events}) == 2


def test_a_hanging_target_fills_no_more_than_its_share(cloud: Cloud, tmp_path: Path) -> None:
    release = threading.Event()

    def hang(connection: Any, host: Host) -> None:
        host.requests.append(read_request(connection))
        release.wait(30)

    cloud.window(delivery_timeout_seconds=20)
    with (
        serving(hang) as stuck,
        serving(answering(NO_CONTENT)) as host,
        worker(cloud, tmp_path, stuck.url, host.url) as event_host,
    ):
        for _ in range(15):
            cloud.reserved(stuck.url)
        event_host.starts.prime()
        eventually(lambda: len(stuck.requests) == 8)
        agents = [cloud.reserved(host.url) for _ in range(5)]
        event_host.starts.prime()
        eventually(lambda: all(cloud.state(each) == "booting" for each in agents))
        assert len(stuck.requests) == 8
        release.set()
        eventually(lambda: len(stuck.requests) == 15, why="the rest follows by itself")


def test_a_key_that_was_added_after_the_worker_began_opens_codes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ensure_keys(path)
    old = SealedCodes(path)
    add_key(path)
    sealed = SealedCodes(path).seal("c0de")
    assert old.open(sealed) == "c0de"


def test_a_worker_without_sealing_keys_does_not_start(cloud: Cloud) -> None:
    with pytest.raises(InvalidInput, match="KICI_SEAL_KEYS_PATH"):
        EventHost(cloud.runtime, Settings(seal_keys_path=None), unpublished)


def waiting_tasks(url: str) -> list[dict[str, Any]]:
    """Tasks in the router's queue, as its worker would get them."""
    with closing(redis.Redis.from_url(url)) as client:
        found = client.lrange("scaler:event.router", 0, -1)
    messages = [json.loads(each) for each in found]
    return [
        {"task": each["headers"]["task"], **json.loads(base64.b64decode(each["body"]))[1]}
        for each in messages
    ]


def test_a_workflow_gets_a_task_without_the_code_until_its_router_acknowledges(
    cloud: Cloud, tmp_path: Path, redis_url: str
) -> None:
    with sender(redis_url, "event-test") as app:
        publish = celery_publisher(app, "event.router")
        with worker(cloud, tmp_path, publish=publish) as event_host:
            agent = cloud.reserved("acme/boot")
            event_host.starts.prime()
            (first,) = eventually(lambda: waiting_tasks(redis_url))
            eventually(lambda: cloud.states(agent, UP) == ["pending"]
                       and not cloud.deliveries(agent, UP)[0]["attempt_open"])  # fmt: skip
            assert cloud.state(agent) == "spawning", "nobody acts on a task alone"
            cloud.retry_now()
            event_host.starts.prime()
            eventually(lambda: len(waiting_tasks(redis_url)) == 2)
            router.fetch(cloud.runtime, first["delivery_id"])
            assert cloud.state(agent) == "booting"
            router.acknowledge(cloud.runtime, first["delivery_id"])
            cloud.retry_now()
            event_host.starts.prime()
        sent = waiting_tasks(redis_url)
    assert first == {
        "task": ROUTE_EVENT,
        "delivery_id": first["delivery_id"],
        "target": "acme/boot",
        "event": first["event"],
    }
    # The time in which it may be acted on has not begun before it is fetched.
    assert len({each["event"]["data"].pop("expiresAt") for each in sent}) == 2
    assert sent[0] == sent[1], "the same, sent again"
    assert "claimCode" not in first["event"]["data"]
    assert first["event"]["data"]["agentId"] == agent
    assert cloud.states(agent, UP) == ["done"]


def test_a_workflow_that_nobody_fetched_was_never_acted_on(
    cloud: Cloud, tmp_path: Path, redis_url: str
) -> None:
    with sender(redis_url, "event-test") as app:
        publish = celery_publisher(app, "event.router")
        with worker(cloud, tmp_path, publish=publish) as event_host:
            agent = cloud.reserved("acme/boot")
            event_host.starts.prime()
            eventually(lambda: waiting_tasks(redis_url))
            eventually(lambda: not cloud.deliveries(agent, UP)[0]["attempt_open"])
            cloud.end(agent)
    assert cloud.states(agent, UP) == ["not-done"]
    assert cloud.deliveries(agent, DOWN) == []


def test_a_broker_that_is_away_is_a_try_that_reached_nobody(cloud: Cloud, tmp_path: Path) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    with sender(nowhere, "event-test") as app:
        publish = celery_publisher(app, "event.router")
        with worker(cloud, tmp_path, publish=publish) as event_host:
            agent = cloud.reserved("acme/boot")
            event_host.starts.prime()
            eventually(lambda: cloud.deliveries(agent, UP)[0]["last_error"], 20)
    (row,) = cloud.deliveries(agent, UP)
    assert "the broker did not take it" in row["last_error"]
    assert not row["may_have_acted"]
