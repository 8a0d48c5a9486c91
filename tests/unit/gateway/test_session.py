"""Steps of a session: in order, each once, and the agent's own fault when there are many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kici_scaler.agent.protocol import ProtocolViolation
from kici_scaler.gateway.lines import LineOrigin
from kici_scaler.gateway.link import Event, Link, LinkClosed
from kici_scaler.gateway.session import MOST_STEPS, TAIL_LINES, Session, Sessions


class Socket:
    """The server's side of a WebSocket, without one."""

    def __init__(self) -> None:
        self.sent: list[Event] = []

    async def receive(self) -> Event:
        return {"type": "websocket.disconnect"}

    async def send(self, event: Event) -> None:
        self.sent.append(event)


def a_session(agent_id: str = "a1", connection: int = 1) -> tuple[Session, Socket]:
    socket = Socket()
    link = Link(socket.receive, socket.send, "")
    return Session(link, agent_id, connection, LineOrigin(agent_id)), socket


def step(told: list[str], what: str, until: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        await until.wait()
        told.append(what)

    return work


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), 10))


def test_steps_are_done_in_order_and_the_same_one_once() -> None:
    async def work() -> list[str]:
        session, _ = a_session()
        told: list[str] = []
        go = asyncio.Event()
        for what in ("one", "two", "one", "two", "three"):
            session.do(what, step(told, what, go))
        go.set()
        await session.settled()
        session.do("one", step(told, "one", go))
        await session.settled()
        return told

    assert run(work) == ["one", "two", "three", "one"]


def test_too_many_unfinished_steps_are_the_agents_fault() -> None:
    async def work() -> None:
        session, _ = a_session()
        go = asyncio.Event()
        for number in range(MOST_STEPS):
            session.do(str(number), step([], "", go))
        with pytest.raises(ProtocolViolation):
            session.do("one more", step([], "", go))
        go.set()
        await session.settled()

    run(work)


def test_a_step_that_fails_closes_the_socket_and_drops_the_rest() -> None:
    async def work() -> tuple[list[str], list[Event]]:
        session, socket = a_session()
        told: list[str] = []
        go = asyncio.Event()
        go.set()

        async def fail() -> None:
            raise RuntimeError("unexpected")

        session.do("fail", fail)
        session.do("later", step(told, "later", go))
        await session.settled()
        return told, socket.sent

    told, sent = run(work)
    assert told == []
    assert (sent[-1]["type"], sent[-1]["code"]) == ("websocket.close", 1011)


def test_nothing_is_said_after_the_close() -> None:
    async def work() -> None:
        session, socket = a_session()
        await session.link.close(4000, "bye")
        await session.link.close(4001, "again")
        with pytest.raises(LinkClosed):
            await session.link.text()
        assert [event["type"] for event in socket.sent] == ["websocket.send", "websocket.close"]

    run(work)


def test_the_last_lines_are_kept() -> None:
    session, _ = a_session()
    session.keep(tuple(str(number) for number in range(TAIL_LINES + 10)))
    assert session.tail is not None
    assert list(session.tail) == [str(number) for number in range(10, TAIL_LINES + 10)]


def test_a_newer_session_takes_the_place_of_an_older_one() -> None:
    sessions = Sessions()
    older, newer = a_session()[0], a_session(connection=2)[0]
    assert sessions.put(older) is None
    assert sessions.put(newer) is older
    assert older.superseded
    sessions.remove(older)
    assert sessions.get("a1") is newer
    sessions.remove(newer)
    assert len(sessions) == 0
