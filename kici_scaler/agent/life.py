"""The agent's life: one connection after another until there is nothing left to do."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

from kici_scaler.agent.agent import Agent
from kici_scaler.agent.channel import Closed, converse
from kici_scaler.agent.exit import AgentExit
from kici_scaler.agent.keeper_link import KeeperLink
from kici_scaler.agent.protocol import Verdict, verdict_of
from kici_scaler.agent.settings import AgentSettings
from kici_scaler.agent.spool import Spool

log = logging.getLogger(__name__)

STEADY_SECONDS = 10.0
"""A connection that lasted this long ends a row of failed attempts."""
HURRIED_RETRY_SECONDS = 0.5
"""An agent that was told to go does not wait longer than this to report."""

_EXITS = {
    Verdict.REFUSED: AgentExit.REFUSED,
    Verdict.GO: AgentExit.DONE,
    Verdict.VIOLATION: AgentExit.VIOLATION,
}


async def live(settings: AgentSettings, spool: Spool, keeper: KeeperLink) -> AgentExit:
    """Be an agent; returns how the process should exit.

    Raises:
        AgentFailure: the agent cannot go on.
    """
    keeper.attach()
    agent = Agent(settings, spool, keeper)
    agent.catch_signals()
    if agent.is_over:
        return AgentExit.DONE
    code = await _stay_connected(agent, settings)
    await agent.clean()
    return code


async def _stay_connected(agent: Agent, settings: AgentSettings) -> AgentExit:
    loop = asyncio.get_running_loop()
    attempt, last_online = 0, loop.time()
    while True:
        opened = loop.time()
        closed = await _converse(agent)
        if agent.has_left is not None:
            return agent.has_left.exit
        verdict = verdict_of(closed.code)
        if verdict is not Verdict.COME_BACK:
            return await _give_up(agent, _EXITS[verdict], closed.reason or verdict)
        now = loop.time()
        if closed.registered:
            last_online = now
            attempt = 0 if now - opened >= STEADY_SECONDS else attempt
        if now - last_online >= settings.offline_max:
            return await _give_up(agent, AgentExit.UNREACHABLE, "no gateway was reached")
        if not closed.at_once:
            await _pause(agent, closed, window(attempt, settings))
            attempt += 1


def window(attempt: int, settings: AgentSettings) -> float:
    """The wait before the next connection is drawn evenly between 0 and this, in seconds.

    It doubles with each attempt in a row (the first is 0) up to a longest. Drawing from
    the whole window spreads the agents that lost one gateway at the same moment.
    """
    return min(settings.reconnect_max, settings.reconnect_base * 2.0 ** min(attempt, 32))


async def _converse(agent: Agent) -> Closed:
    """One connection; one that is still being opened does not delay an exit."""
    talking = asyncio.ensure_future(converse(agent))
    leaving = asyncio.ensure_future(agent.leaving())
    try:
        await asyncio.wait({talking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not talking.done() and not agent.is_online:
            return Closed()
        return await talking
    finally:
        await _end(talking, leaving)


async def _pause(agent: Agent, closed: Closed, longest: float) -> None:
    hurried = agent.in_a_hurry.is_set()
    delay = random.uniform(0, min(longest, HURRIED_RETRY_SECONDS) if hurried else longest)
    log.info("disconnected (%s %s); back in %.1f s", closed.code, closed.reason, delay)
    waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(agent.leaving())]
    if not hurried:
        waiting.append(asyncio.ensure_future(agent.in_a_hurry.wait()))
    await asyncio.wait(waiting, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
    await _end(*waiting)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _give_up(agent: Agent, code: AgentExit, why: str) -> AgentExit:
    log.error("leaving for good: %s", why)
    await agent.abandon(why)
    return code
