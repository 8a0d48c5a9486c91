"""The reservation mutex: one holder at most, gone with its holder, and never in anybody's way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from kici_scaler.broker import mutex
from kici_scaler.broker.mutex import KEY, REST_MILLIS, TTL_MILLIS, RedisMutex
from kici_scaler.service.ports import Patience
from tests.support.tcp_proxy import CutReply, TcpProxy
from tests.support.waiting import free_port


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_timeout=1, socket_connect_timeout=1, retry=Retry(NoBackoff(), 0)
    )


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with _client(redis_url) as made:
        yield made


def _seconds(work: object) -> float:
    assert callable(work)
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def _rests(client: redis.Redis) -> bool:
    """Whether it is free, or will be in a moment."""
    return client.pttl(KEY) <= REST_MILLIS


def test_it_is_held_for_as_long_as_the_block_and_has_a_lifetime(client: redis.Redis) -> None:
    with RedisMutex(client).held() as got:
        assert got
        assert REST_MILLIS < client.pttl(KEY) <= TTL_MILLIS
    assert _rests(client)


@pytest.mark.parametrize("patience", [Patience.NONE, Patience.COLLECTING])
def test_it_rests_after_a_holder_for_those_who_collect(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, patience: Patience
) -> None:
    monkeypatch.setattr(mutex, "REST_MILLIS", 60_000)
    monkeypatch.setattr(mutex, "LONGEST_WAIT_SECONDS", 0.0)
    with RedisMutex(client).held():
        pass
    with RedisMutex(client).held(patience) as got:
        assert got is False


def test_who_is_waited_for_does_not_heed_the_rest_and_is_alone_all_the_same(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutex, "REST_MILLIS", 60_000)
    monkeypatch.setattr(mutex, "LONGEST_WAIT_SECONDS", 0.0)
    with RedisMutex(client).held():
        pass
    with RedisMutex(client).held() as first, RedisMutex(client).held() as second:
        assert (first, second) == (True, False)


def test_who_collects_gets_it_after_the_rest(client: redis.Redis) -> None:
    for _ in range(5):
        with RedisMutex(client).held(Patience.COLLECTING) as got:
            assert got


def test_who_has_no_patience_tries_once(client: redis.Redis) -> None:
    client.set(KEY, "another", px=60_000)
    with RedisMutex(client).held(Patience.NONE) as got:
        assert got is False
    client.delete(KEY)
    with RedisMutex(client).held(Patience.NONE) as got:
        assert got


def test_whoever_does_not_get_it_goes_on_after_a_moment(client: redis.Redis) -> None:
    client.set(KEY, "another", px=60_000)
    begun = time.monotonic()
    with RedisMutex(client).held() as got:
        assert not got
    assert 0.2 <= time.monotonic() - begun < 2
    assert client.get(KEY) == b"another"


def test_only_its_holder_releases_it(client: redis.Redis) -> None:
    """The first one's lifetime is over, and another has it by now."""
    with RedisMutex(client).held() as got:
        assert got
        client.set(KEY, "another", px=60_000)
    assert client.get(KEY) == b"another"
    assert not _rests(client)


def test_it_is_released_when_the_block_fails(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="no"), RedisMutex(client).held():
        raise ValueError("no")
    assert _rests(client)


def test_at_most_one_of_many_holds_it(redis_url: str) -> None:
    holders, most = 0, []
    counting = threading.Lock()

    def hold(_: int) -> bool:
        nonlocal holders
        with _client(redis_url) as mine, RedisMutex(mine).held() as got:
            if got:
                with counting:
                    holders += 1
                    most.append(holders)
                mine.ping()
                with counting:
                    holders -= 1
            return bool(got)

    with ThreadPoolExecutor(12) as pool:
        assert any(pool.map(hold, range(60)))
    assert max(most) == 1


def test_a_server_that_is_away_costs_the_first_caller_a_moment_and_the_next_nothing() -> None:
    away = RedisMutex(_client(f"redis://127.0.0.1:{free_port()}/0"))

    def hold() -> None:
        with away.held() as got:
            assert got is None

    assert _seconds(hold) < 2
    assert _seconds(hold) < 0.1


def test_a_server_that_is_back_is_used_again(
    client: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutex, "MUTE_SECONDS", 0.0)
    port = int(redis_url.rsplit(":", 1)[1].split("/")[0])
    with TcpProxy(("127.0.0.1", port)) as proxy:
        far = RedisMutex(_client(redis_url.replace(f":{port}", f":{proxy.port}")))
        proxy.refuse()
        proxy.drop()
        with far.held() as got:
            assert not got
        proxy.listen()
        with far.held() as got:
            assert got


def test_a_lost_answer_is_no_error_and_lapses_by_itself(
    client: redis.Redis, redis_url: str
) -> None:
    """It may have been got without anybody knowing: then it stands until its lifetime is over."""
    port = int(redis_url.rsplit(":", 1)[1].split("/")[0])
    with TcpProxy(("127.0.0.1", port)) as proxy:
        far = RedisMutex(_client(redis_url.replace(f":{port}", f":{proxy.port}")))
        proxy.requests = CutReply(b"\r\nEVAL\r\n")
        with far.held() as got:
            assert not got
    left = client.pttl(KEY)
    assert 0 < left <= TTL_MILLIS
