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
from kici_scaler.broker.backlog import IntakeBacklog
from kici_scaler.broker.mutex import (
    KEY,
    LONGEST_REST_MILLIS,
    REST_MILLIS,
    TTL_MILLIS,
    RedisMutex,
    rest_millis,
)
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
    with RedisMutex(client).held() as turn:
        assert turn.is_mine
        assert REST_MILLIS < client.pttl(KEY) <= TTL_MILLIS
    assert _rests(client)


@pytest.mark.parametrize("patience", [Patience.NONE, Patience.COLLECTING])
def test_who_collects_is_told_for_how_long_it_rests_after_a_holder(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, patience: Patience
) -> None:
    monkeypatch.setattr(mutex, "REST_MILLIS", 60_000)
    monkeypatch.setattr(mutex, "LONGEST_REST_MILLIS", 60_000)
    with RedisMutex(client).held():
        pass
    with RedisMutex(client).held(patience) as turn:
        assert turn.is_mine is False
        assert 50 < turn.rests_for <= 60


def test_who_is_waited_for_does_not_heed_the_rest_and_is_alone_all_the_same(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutex, "REST_MILLIS", 60_000)
    monkeypatch.setattr(mutex, "LONGEST_REST_MILLIS", 60_000)
    monkeypatch.setattr(mutex, "LONGEST_WAIT_SECONDS", 0.0)
    with RedisMutex(client).held():
        pass
    with RedisMutex(client).held() as first, RedisMutex(client).held() as second:
        assert (first.is_mine, second.is_mine) == (True, False)


def test_who_collects_gets_it_once_it_has_rested(client: redis.Redis) -> None:
    with RedisMutex(client).held(Patience.COLLECTING) as turn:
        assert turn.is_mine


def test_the_rest_is_the_longer_the_more_wait_to_be_stored_up_to_a_bound() -> None:
    rests = [rest_millis(backlog) for backlog in range(200)]
    assert rests == sorted(rests)
    assert rests[0] == REST_MILLIS
    assert rests[20] > 20
    assert rests[-1] == LONGEST_REST_MILLIS


def test_it_rests_longer_while_many_wait_in_the_queue(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutex, "LONGEST_REST_MILLIS", 600_000)
    client.rpush("scaler:intake", *(["message"] * 60_000))
    with RedisMutex(client, IntakeBacklog(client)).held():
        pass
    assert int(str(client.pttl(KEY))) > 30_000


def test_a_queue_that_cannot_be_looked_at_is_taken_for_empty_and_left_alone_for_a_while(
    client: redis.Redis,
) -> None:
    backlog = IntakeBacklog(_client(f"redis://127.0.0.1:{free_port()}/0"))
    with RedisMutex(client, backlog).held():
        pass
    assert _rests(client)
    backlog.client = client
    client.rpush("scaler:intake", "message")
    assert backlog() == 0


def test_who_has_no_patience_tries_once(client: redis.Redis) -> None:
    client.set(KEY, "another", px=60_000)
    with RedisMutex(client).held(Patience.NONE) as turn:
        assert turn.is_mine is False
    client.delete(KEY)
    with RedisMutex(client).held(Patience.NONE) as turn:
        assert turn.is_mine


def test_whoever_does_not_get_it_goes_on_after_a_moment(client: redis.Redis) -> None:
    client.set(KEY, "another", px=60_000)
    begun = time.monotonic()
    with RedisMutex(client).held() as turn:
        assert turn.is_mine is False
    assert 0.2 <= time.monotonic() - begun < 2
    assert client.get(KEY) == b"another"


def test_only_its_holder_releases_it(client: redis.Redis) -> None:
    """The first one's lifetime is over, and another has it by now."""
    with RedisMutex(client).held() as turn:
        assert turn.is_mine
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
        with _client(redis_url) as mine, RedisMutex(mine).held() as turn:
            if turn.is_mine:
                with counting:
                    holders += 1
                    most.append(holders)
                mine.ping()
                with counting:
                    holders -= 1
            return bool(turn.is_mine)

    with ThreadPoolExecutor(12) as pool:
        assert any(pool.map(hold, range(60)))
    assert max(most) == 1


def test_a_server_that_is_away_costs_the_first_caller_a_moment_and_the_next_nothing() -> None:
    away = RedisMutex(_client(f"redis://127.0.0.1:{free_port()}/0"))

    def hold() -> None:
        with away.held() as turn:
            assert turn.is_mine is None

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
        with far.held() as turn:
            assert turn.is_mine is None
        proxy.listen()
        with far.held() as turn:
            assert turn.is_mine


def test_a_lost_answer_is_no_error_and_lapses_by_itself(
    client: redis.Redis, redis_url: str
) -> None:
    """It may have been got without anybody knowing: then it stands until its lifetime is over."""
    port = int(redis_url.rsplit(":", 1)[1].split("/")[0])
    with TcpProxy(("127.0.0.1", port)) as proxy:
        far = RedisMutex(_client(redis_url.replace(f":{port}", f":{proxy.port}")))
        proxy.requests = CutReply(b"\r\nEVAL\r\n")
        with far.held() as turn:
            assert turn.is_mine is None
    left = client.pttl(KEY)
    assert 0 < left <= TTL_MILLIS
