"""What is owed to the gateway, in order, over any number of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from kici_scaler.agent.lines import LineStore
from kici_scaler.agent.outbox import WINDOW, Outbox
from kici_scaler.agent.protocol import (
    ConfigAck,
    FromAgent,
    JobAccepted,
    JobFinished,
    JobResult,
    JobStatus,
    Log,
    Stream,
)

T = TypeVar("T")
FINISHED = JobFinished("job", JobResult(JobStatus.SUCCEEDED, 1, 2, 0))


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 10))


def _outbox(resend: float = 60.0) -> Outbox:
    outbox = Outbox(resend)
    outbox.begin("job", LineStore())
    return outbox


async def _next(outbox: Outbox) -> FromAgent:
    return await outbox.next(1 << 20)


async def _is_silent(outbox: Outbox, seconds: float = 0.3) -> bool:
    try:
        await asyncio.wait_for(_next(outbox), seconds)
    except TimeoutError:
        return True
    return False


def test_answers_go_before_lines_and_the_result_after_them() -> None:
    async def work() -> list[FromAgent]:
        outbox = _outbox()
        outbox.finish(FINISHED)
        outbox.put(Stream.STDOUT, [b"line"])
        outbox.say(JobAccepted("job"))
        return [await _next(outbox) for _ in range(3)]

    assert _run(work()) == [
        JobAccepted("job"),
        Log("job", 1, Stream.STDOUT, ("line",)),
        FINISHED,
    ]


def test_a_first_line_goes_at_once_and_later_ones_together() -> None:
    async def work() -> tuple[FromAgent, FromAgent, float]:
        outbox, loop = _outbox(), asyncio.get_running_loop()
        outbox.put(Stream.STDOUT, [b"1"])
        first = await _next(outbox)
        began = loop.time()
        outbox.put(Stream.STDOUT, [b"2"])
        loop.call_later(0.03, outbox.put, Stream.STDOUT, [b"3"])
        return first, await _next(outbox), loop.time() - began

    first, second, seconds = _run(work())
    assert first == Log("job", 1, Stream.STDOUT, ("1",))
    assert second == Log("job", 2, Stream.STDOUT, ("2", "3"))
    assert seconds < 5


def test_the_end_of_the_job_does_not_wait_for_company() -> None:
    async def work() -> tuple[FromAgent, FromAgent]:
        outbox = _outbox()
        outbox.put(Stream.STDOUT, [b"1"])
        await _next(outbox)
        outbox.put(Stream.STDOUT, [b"2"])
        outbox.finish(FINISHED)
        return await _next(outbox), await _next(outbox)

    assert _run(work()) == (Log("job", 2, Stream.STDOUT, ("2",)), FINISHED)


def test_a_new_connection_repeats_what_is_not_confirmed() -> None:
    async def work() -> list[FromAgent]:
        outbox = _outbox()
        sent = []
        for stream in (Stream.STDOUT, Stream.STDERR, Stream.STDOUT):
            outbox.put(stream, [b"x"])
        outbox.finish(FINISHED)
        sent = [await _next(outbox) for _ in range(4)]
        assert isinstance(sent[0], Log)
        outbox.confirm(sent[0])
        outbox.say(ConfigAck())
        outbox.rewind()
        return [*sent, *[await _next(outbox) for _ in range(3)]]

    messages = _run(work())
    assert [each.seq for each in messages[:3] if isinstance(each, Log)] == [1, 2, 3]
    assert messages[4:] == [messages[1], messages[2], FINISHED]


def test_only_so_many_messages_are_on_their_way() -> None:
    async def work() -> tuple[bool, FromAgent]:
        outbox = _outbox()
        for _ in range(WINDOW):
            outbox.put(Stream.STDOUT, [b"a"])
            outbox.put(Stream.STDERR, [b"b"])
        outbox.finish(FINISHED)
        sent = [await _next(outbox) for _ in range(WINDOW)]
        silent = await _is_silent(outbox)
        first = sent[0]
        assert isinstance(first, Log)
        asyncio.get_running_loop().call_later(0.05, outbox.confirm, first)
        return silent, await _next(outbox)

    silent, following = _run(work())
    assert silent
    assert isinstance(following, Log)
    assert following.seq == WINDOW + 1


def test_the_result_is_said_again_after_a_while() -> None:
    async def work() -> list[FromAgent]:
        outbox = _outbox(resend=0.05)
        outbox.finish(FINISHED)
        return [await _next(outbox) for _ in range(3)]

    assert _run(work()) == [FINISHED] * 3


def test_a_confirmation_for_an_earlier_job_means_nothing_to_the_next() -> None:
    async def work() -> FromAgent:
        outbox = _outbox()
        outbox.put(Stream.STDOUT, [b"old"])
        old = await _next(outbox)
        outbox.begin("next", LineStore())
        outbox.put(Stream.STDOUT, [b"new"])
        await _next(outbox)
        assert isinstance(old, Log)
        outbox.confirm(old)
        outbox.rewind()
        return await _next(outbox)

    assert _run(work()) == Log("next", 1, Stream.STDOUT, ("new",))


@pytest.mark.parametrize("when", ["nothing", "sent"])
def test_without_anything_to_say_it_is_silent(when: str) -> None:
    async def work() -> bool:
        outbox = _outbox()
        if when == "sent":
            outbox.put(Stream.STDOUT, [b"x"])
            await _next(outbox)
        return await _is_silent(outbox)

    assert _run(work())


@pytest.mark.parametrize("steps_later", range(5))
def test_a_sender_that_is_cancelled_as_a_message_comes_ends_all_the_same(steps_later: int) -> None:
    async def send(outbox: Outbox) -> None:
        while True:
            await _next(outbox)

    async def work() -> bool:
        outbox = _outbox()
        outbox.finish(FINISHED)
        sender = asyncio.ensure_future(send(outbox))
        await asyncio.sleep(0.01)
        outbox.finish(FINISHED)
        for _ in range(steps_later):
            await asyncio.sleep(0)
        sender.cancel()
        await asyncio.wait({sender}, timeout=2)
        return sender.cancelled()

    assert _run(work())
