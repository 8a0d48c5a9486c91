"""The supervisor is killed at each of its steps; the next command puts everything right."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.callers import Caller
from tests.integration.workers.bare_metal.conftest import Site
from tests.integration.workers.bare_metal.test_ending import WAIT
from tests.support.waiting import eventually
from workers.bare_metal.supervisor.folder import Root
from workers.bare_metal.supervisor.refusal import Refused
from workers.bare_metal.supervisor.reports import list_agents
from workers.bare_metal.supervisor.start import start
from workers.bare_metal.supervisor.stop import stop

Answer = dict[str, Any]

STEPS = {"os.mkdir", "os.rename", "os.fork", "os.exec", "os.remove", "shutil.rmtree", "fcntl.flock"}
"""What leaves a trace, besides opening a file to write it."""

MOST_STEPS = 200


def _dies_at(step: int) -> None:
    """Kill this process, or what it forks meanwhile, just before its step of that number."""
    taken = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal taken
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event in STEPS or writes:
            taken += 1
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


class Supervised:
    """One agent at a site, by direct calls of the supervisor."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._witness = site.folder / "witness"
        self._witness.touch()
        sign = f"open({str(self._witness)!r}, 'a').write('started\\n')\n"
        order = site.order(site.label_set(sign + WAIT))
        self.agent_id = order.agent_id
        self._program = order.label_set.text("binaryPath")
        self.root = Root(site.root)
        site.root.mkdir(parents=True)

    def start(self, token: int) -> Answer:
        """Start it, or take it over."""
        asked = {
            "agent_id": self.agent_id,
            "installation_id": self._site.installation_id,
            "token": token,
            "command": [self._program],
            "agent_token": "the-secret",
            "environment": {},
            "scaler": "pool",
        }
        return start(self.root, asked, time.monotonic() + 20)

    def start_refused(self, token: int) -> str | None:
        """Start it; the code of the refusal, if it was refused."""
        return _refusal(lambda: self.start(token))

    def stop(self, token: int) -> Answer:
        """Stop it."""
        asked = {
            "agent_id": self.agent_id,
            "installation_id": self._site.installation_id,
            "token": token,
            "grace_seconds": 5,
        }
        return stop(self.root, asked, time.monotonic() + 20)

    def list(self) -> list[Answer]:
        """What the inventory says."""
        asked = {"installation_id": self._site.installation_id}
        answer = list_agents(self.root, asked, time.monotonic() + 20)
        assert not answer["unreadable"]
        agents: list[Answer] = answer["agents"]
        return agents

    @property
    def starts(self) -> int:
        """How often the agent ever ran."""
        return len(self._witness.read_text().splitlines())

    def killed_at(self, step: int, act: Callable[[], object]) -> bool:
        """Whether the process that does it was killed, or something it forked for it was."""

        def doomed() -> str | None:
            _dies_at(step)
            return _refusal(act)

        try:
            return Caller(doomed).result() is not None
        except AssertionError:
            return True

    def check_gone(self) -> None:
        """Nothing of it runs, and of its files only the tombstone is there."""
        assert not self._site.living()
        assert self.list() == []
        assert not list(self.root.agents.glob("*"))
        assert not list(self.root.making.glob("*"))
        assert not list(self.root.attic.glob("*"))


def _refusal(act: Callable[[], object]) -> str | None:
    try:
        act()
    except Refused as refusal:
        return refusal.code
    return None


def _steps(act: Callable[[int], bool]) -> int:
    """Do it with a kill at the first step, the second, ... until none hits; how many did."""
    for step in range(1, MOST_STEPS):
        if not act(step):
            return step - 1
    pytest.fail(f"more than {MOST_STEPS} steps")


def test_a_start_killed_at_any_step_is_finished_or_undone_by_the_next_command(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def round_of(step: int) -> bool:
        site = Site(tmp_path_factory.mktemp("site"), {})
        agent = Supervised(site)
        try:
            was_killed = agent.killed_at(step, lambda: agent.start(1))
            assert len(agent.list()) <= 1
            if step % 2:
                _start_again(site, agent)
            agent.stop(3)
            agent.check_gone()
            assert agent.starts <= 1
        finally:
            site.close()
        return was_killed

    assert _steps(round_of) > 20


def _start_again(site: Site, agent: Supervised) -> None:
    """The next lease owns one running agent, or learns that it ran and is over.

    One whose monitor was killed may end at any moment: nobody takes what it prints.
    """
    refusal = agent.start_refused(2)
    if refusal is None:
        eventually(lambda: agent.starts == 1)
    assert refusal in (None, "ended")
    eventually(lambda: len(site.living()) == sum(each["running"] for each in agent.list()))
    [entry] = agent.list()
    assert entry["token"] == 2


def test_a_stop_killed_at_any_step_is_finished_by_the_next_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def round_of(step: int) -> bool:
        site = Site(tmp_path_factory.mktemp("site"), {})
        agent = Supervised(site)
        try:
            agent.start(1)
            was_killed = agent.killed_at(step, lambda: agent.stop(2))
            assert agent.start_refused(1) in (None, "not-owner")
            agent.stop(3)
            agent.check_gone()
            assert agent.starts <= 1
        finally:
            site.close()
        return was_killed

    assert _steps(round_of) > 5


def test_an_agent_whose_monitor_dies_before_releasing_it_never_runs(site: Site) -> None:
    agent = Supervised(site)

    def held() -> str | None:
        _hold_release()
        return agent.start_refused(1)

    caller = Caller(held)
    pid = eventually(lambda: agent.root.folder(agent.agent_id).process)
    assert pid is not None
    monitor = agent.root.folder(agent.agent_id).monitor
    assert monitor is not None

    os.kill(monitor.pid, signal.SIGKILL)

    assert caller.result() == "unknown"
    eventually(lambda: not pid.is_alive)
    assert agent.starts == 0
    agent.stop(2)
    agent.check_gone()


def _hold_release() -> None:
    """Let a monitor that is forked from here hang between the agent's record and its release."""
    original = os.write

    def write(descriptor: int, data: bytes) -> int:
        if data == b"g":
            signal.pause()
        return original(descriptor, data)

    os.write = write  # type: ignore[assignment]  # in a forked child of the test alone
