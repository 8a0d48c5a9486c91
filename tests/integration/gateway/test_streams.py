"""Wake-ups and live log lines, on a real Redis that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest
import redis
from sqlalchemy.engine import make_url

from kici_scaler.broker import log_stream, wakeups
from kici_scaler.broker.log_stream import LogEntry, LogStream, key_of, open_client
from kici_scaler.broker.wakeups import Wakeup
from tests.support.tcp_proxy import TcpProxy

Work = Callable[[LogStream], Coroutine[Any, Any, Any]]


def entry(seq: int, *lines: str, job: str = "j1") -> LogEntry:
    return LogEntry(job, seq, "stdout", lines)


def on_stream(url: str, work: Work) -> Any:
    async def run() -> Any:
        stream = LogStream(open_client(url))
        try:
            return await asyncio.wait_for(work(stream), 20)
        finally:
            await stream.close()

    return asyncio.run(run())


def test_entries_are_read_from_any_position_and_waited_for(redis_url: str) -> None:
    async def work(stream: LogStream) -> None:
        await stream.append([("a1", entry(1, "one")), ("a1", entry(2, "two", "ü\n"))])
        first, second = await stream.after("a1")
        assert (first.lines, second.lines) == (("one",), ("two", "ü\n"))
        assert await stream.after("a1", first.position) == [second]
        assert await stream.after("a1", second.position) == []
        assert await stream.after("nobody") == []
        waiting = asyncio.ensure_future(stream.after("a1", second.position, wait_seconds=10))
        await asyncio.sleep(0)
        await stream.append([("a1", entry(3, "three"))])
        assert [each.seq for each in await waiting] == [3]

    on_stream(redis_url, work)


def test_the_last_lines_and_the_last_number_are_those_of_the_job(redis_url: str) -> None:
    async def work(stream: LogStream) -> None:
        assert await stream.last_seq("a1", "j1") == 0
        assert await stream.tail("a1", "j1", 5) == ()
        await stream.append(
            [("a1", entry(7, "other", job="j0"))]
            + [("a1", entry(n, f"{n}a", f"{n}b")) for n in range(1, 4)]
        )
        assert await stream.last_seq("a1", "j1") == 3
        assert await stream.last_seq("a1", "j0") == 0
        assert await stream.tail("a1", "j1", 3) == ("2b", "3a", "3b")

    on_stream(redis_url, work)


def test_a_stream_is_capped_and_goes_after_a_while(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_stream, "MOST_CHARACTERS", 1_000_000)

    async def work(stream: LogStream) -> None:
        for seq in range(100):
            await stream.append([("a1", entry(seq, "x" * 100_000))])

    on_stream(redis_url, work)
    with closing(redis.Redis.from_url(redis_url)) as client:
        assert client.xlen(key_of("a1")) <= 20
        assert 0 < client.ttl(key_of("a1")) <= log_stream.TTL_SECONDS


def test_wake_ups_reach_their_own_gateway_only(redis_url: str) -> None:
    first, second = Wakeup("a1"), Wakeup("a2", '["a job"]', "its run")

    async def work() -> list[Wakeup | None]:
        listening = wakeups.listen(open_client(redis_url), "g1")
        heard = [await anext(listening)]
        with closing(redis.Redis.from_url(redis_url)) as client:
            wakeups.publish(client, [("g2", Wakeup("a0")), ("g1", first), ("g1", second)])
        heard += [await anext(listening), await anext(listening)]
        await listening.aclose()
        return heard

    assert asyncio.run(asyncio.wait_for(work(), 20)) == [None, first, second]


@pytest.mark.parametrize("agent_id", ['["other","job","run"]', '"abc"', '{"a":1,"b":2,"c":3}', "7"])
def test_an_agent_that_chose_its_own_name_is_woken_by_it(agent_id: str) -> None:
    """No wake-up of one agent is ever an offer to another."""
    for wakeup in (Wakeup(agent_id), Wakeup(agent_id, "job\n", "")):
        assert Wakeup.decoded(wakeup.encoded()) == wakeup


def test_a_listener_returns_with_redis_and_says_that_it_was_away(redis_url: str) -> None:
    url = make_url(redis_url)
    assert url.host is not None
    assert url.port is not None
    with TcpProxy((url.host, url.port)) as proxy:
        through = url.set(host=proxy.host, port=proxy.port).render_as_string(hide_password=False)

        async def work() -> list[Wakeup | None]:
            listening = wakeups.listen(open_client(through), "g1")
            heard = [await anext(listening)]
            proxy.refuse()
            proxy.drop()
            again = asyncio.ensure_future(anext(listening))
            await asyncio.sleep(0.5)
            assert not again.done()
            proxy.listen()
            heard.append(await again)
            with closing(redis.Redis.from_url(redis_url)) as client:
                wakeups.publish(client, [("g1", Wakeup("a1"))])
            heard.append(await anext(listening))
            await listening.aclose()
            return heard

        assert asyncio.run(asyncio.wait_for(work(), 30)) == [None, None, Wakeup("a1")]
