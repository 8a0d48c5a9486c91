"""Errands and returns of many agents: what one of them does costs no other anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kici_scaler.agent.protocol import CloseCode, Facts, Register
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway import introduction
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.errands import Errands
from kici_scaler.gateway.life import Life
from kici_scaler.gateway.session import MOST_STEPS, Session, Sessions
from kici_scaler.store.agents import Errand
from kici_scaler.store.engine import CommitUnknown, DatabaseUnreachable
from tests.unit.gateway.test_session import a_session, run


class Threads:
    """Answers every call to the database with one thing, after something else has happened."""

    def __init__(self, answer: object, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._answer = answer
        self._meanwhile = meanwhile

    async def life(self, *_: object, **__: object) -> Any:
        self._meanwhile()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    channel = life


class Front(SimpleNamespace):
    """What the parts under test use of a gateway."""

    def __init__(self, threads: Threads, *sessions: Session) -> None:
        super().__init__(threads=threads, runtime=None, incarnation="gw", tasks=[])
        self.departed: list[tuple[str, int]] = []
        self.sessions = Sessions()
        for each in sessions:
            self.sessions.put(each)

    def spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def part(self, session: Session) -> None:
        Gateway.part(_as_gateway(self), session)


def _as_gateway(front: Front) -> Gateway:
    return cast(Gateway, front)


async def _never() -> None:
    await asyncio.Event().wait()


def _offer(agent: str) -> Errand:
    return Errand(agent, 1, SpawnState.IDLE, "job", "run", None, None)


def test_an_agent_that_floods_its_gateway_costs_only_itself_its_errands() -> None:
    async def work() -> tuple[list[Any], list[Any]]:
        (flood, its), (other, others) = a_session("flood"), a_session("other")
        front = Front(Threads([_offer("flood"), _offer("other")]), flood, other)
        for number in range(MOST_STEPS):
            flood.do(f"step {number}", _never)
        flood.ready = other.ready = True
        await Errands(_as_gateway(front), "")._look(None)
        await other.settled()
        await asyncio.gather(*front.tasks)
        return its.sent, others.sent

    flooded, served = run(work)
    assert flooded[-1].get("code") == CloseCode.PROTOCOL_VIOLATION
    assert "job.offer" in str(served)


@pytest.mark.parametrize("is_superseded", [False, True])
def test_who_leaves_while_connections_are_reasserted_is_recorded_after_that(
    is_superseded: bool,
) -> None:
    async def work() -> list[tuple[str, int]]:
        session, _ = a_session("a1", 7)
        front = Front(Threads(frozenset({"a1"})), session)

        def leave_and_be_recorded() -> None:
            session.superseded = is_superseded
            front.part(session)
            front.departed = []

        front.threads = Threads(frozenset({"a1"}), leave_and_be_recorded)
        life = Life(_as_gateway(front), "")
        life._must_reassert = True
        await life._reassert()
        return list(front.departed)

    assert run(work) == ([] if is_superseded else [("a1", 7)])


@pytest.mark.parametrize(
    ("trouble", "open_connection", "expected"),
    [
        (CommitUnknown("no answer"), None, [("a1", 3)]),
        (CommitUnknown("no answer"), 2, [("a1", 3)]),
        (CommitUnknown("no answer"), 3, []),
        (DatabaseUnreachable("no answer"), None, []),
    ],
)
def test_an_agent_that_may_have_been_adopted_and_does_not_stay_counts_as_gone(
    trouble: Exception, open_connection: int | None, expected: list[tuple[str, int]]
) -> None:
    async def work() -> list[tuple[str, int]]:
        front = Front(Threads(trouble))
        if open_connection is not None:
            front.sessions.put(a_session("a1", open_connection)[0])
        facts = Facts("linux", "x64", "host", 1, "1")
        said = Register(protocol=1, agent_id="a1", labels=(), connection=3, facts=facts)
        await introduction._register(_as_gateway(front), said, may_return=False)
        return list(front.departed)

    assert run(work) == expected
