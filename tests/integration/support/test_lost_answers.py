"""The proxy's patterns fit what real clients send: an answer can be lost, and only it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import URL, Engine, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from tests.support.tcp_proxy import CutReply, CutRequest, Mode, TcpProxy


@pytest.fixture
def proxy(empty_database: str) -> Iterator[TcpProxy]:
    url = make_url(empty_database)
    with TcpProxy((str(url.host), int(url.port or 0))) as between:
        yield between


@pytest.fixture
def engine(empty_database: str, proxy: TcpProxy) -> Iterator[Engine]:
    """Connects through the proxy to a database with one empty table, `written`."""
    url: URL = make_url(empty_database).set(host=proxy.host, port=proxy.port)
    through = create_engine(url)
    with through.begin() as session:
        session.execute(text("CREATE TABLE written (number integer)"))
    yield through
    through.dispose()


def write(engine: Engine) -> None:
    with engine.begin() as session:
        session.execute(text("INSERT INTO written VALUES (1)"))


def count(engine: Engine) -> int:
    with engine.connect() as session:
        return int(session.execute(text("SELECT count(*) FROM written")).scalar_one())


def test_a_commit_whose_answer_is_lost_fails_and_is_written(
    engine: Engine, proxy: TcpProxy
) -> None:
    proxy.requests = CutReply(b"COMMIT")
    with pytest.raises(OperationalError):
        write(engine)
    assert count(engine) == 1


def test_a_commit_that_is_lost_fails_the_same_way_and_is_not_written(
    engine: Engine, proxy: TcpProxy
) -> None:
    proxy.requests = CutRequest(b"COMMIT")
    with pytest.raises(OperationalError):
        write(engine)
    assert count(engine) == 0


def test_a_push_whose_answer_is_lost_fails_and_is_in_the_queue(redis_url: str) -> None:
    url = make_url(redis_url)
    with (
        TcpProxy((str(url.host), int(url.port or 0))) as proxy,
        closing(_client(redis_url)) as direct,
        closing(_client(_through(url, proxy))) as client,
    ):
        proxy.requests = CutReply(b"LPUSH")
        with pytest.raises(redis.ConnectionError):
            client.lpush("queue", "task")
        assert direct.llen("queue") == 1


def test_a_hung_redis_runs_into_the_clients_deadline(redis_url: str) -> None:
    url = make_url(redis_url)
    with (
        TcpProxy((str(url.host), int(url.port or 0))) as proxy,
        closing(_client(_through(url, proxy))) as client,
    ):
        assert client.ping()
        proxy.requests = Mode.SWALLOW
        with pytest.raises(redis.TimeoutError):
            client.ping()


def _through(url: URL, proxy: TcpProxy) -> str:
    there = url.set(host=proxy.host, port=proxy.port)
    return there.render_as_string(hide_password=False)


def _client(url: str) -> redis.Redis:
    """One that reports the first failure instead of trying again."""
    return redis.Redis.from_url(url, socket_timeout=0.5, retry=Retry(NoBackoff(), 0))
