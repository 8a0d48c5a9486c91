"""The keeper of a job's processes, at moments that only chance would bring about."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from kici_scaler.agent import linux
from kici_scaler.agent.keeper import Keeper
from tests.support.waiting import eventually


class _Watching(Keeper):
    """One that has started a command, without what it talks to the agent by."""

    def __init__(self, leader: int) -> None:
        self._leader, self._ended = leader, None

    @property
    def leader_has_ended(self) -> bool:
        return self._ended is not None

    def look(self) -> int:
        return self._reap()


def _leader_dies_while_children_are_listed() -> None:
    """In a process of its own, which adopts what the leader leaves behind."""
    linux.become_subreaper()
    leader = subprocess.Popen(["sh", "-c", "sleep 60 & exec sleep 60"])
    eventually(lambda: bool(linux.children(leader.pid)), why="the leader has a child")
    listed = linux.children

    def list_then_die(pid: int) -> frozenset[int] | None:
        found = listed(pid)
        linux.children = listed
        leader.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
        return found

    keeper = _Watching(leader.pid)
    linux.children = list_then_die
    alive = keeper.look()
    assert alive == 1 or not keeper.leader_has_ended
    assert keeper.look() == 1
    assert keeper.leader_has_ended
    for child in linux.children(os.getpid()) or ():
        os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not made by forking here")
def test_what_a_leader_leaves_behind_is_seen_whenever_it_dies() -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _leader_dies_while_children_are_listed()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
