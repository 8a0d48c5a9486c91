"""Connections are shared, bounded, given up when in doubt, and not asked for too often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from workers.bare_metal.ssh import command as commands
from workers.bare_metal.ssh.command import Ended
from workers.bare_metal.ssh.dial import Connection, Timeouts
from workers.bare_metal.ssh.errors import HostKeyRefused
from workers.bare_metal.ssh.link import Bounds, Link
from workers.bare_metal.ssh.target import Target
from workers.contract import Deadline
from workers.errors import NotDone, OutcomeUnknown, Unreachable

DONE = Ended(0, b"", "")


class _Connection:
    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class _World:
    """A machine that answers as it is told, and a clock."""

    def __init__(self) -> None:
        self.time = 100.0
        self.made: list[_Connection] = []
        self.failure: Unreachable | None = None
        self.answers: list[Callable[[], Ended]] = []

    def dial(self, _target: Target, _deadline: Deadline, _timeouts: Timeouts) -> Connection:
        if self.failure is not None:
            raise self.failure
        self.made.append(_Connection())
        return cast("Connection", self.made[-1])

    def run(self, *_: Any) -> Ended:
        return self.answers.pop(0)() if self.answers else DONE

    def link(self, **more: Any) -> Link:
        return Link(Target("m"), dial=self.dial, now=lambda: self.time, jitter=lambda: 1.0, **more)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> _World:
    made = _World()
    monkeypatch.setattr(commands, "run", made.run)
    return made


def soon() -> Deadline:
    return Deadline.after(5)


def _raise(error: Exception) -> Callable[[], Ended]:
    def answer() -> Ended:
        raise error

    return answer


def test_nothing_is_opened_before_it_is_used_and_then_shared(world: _World) -> None:
    link = world.link()
    assert world.made == []

    for _ in range(3):
        link.run("true", b"", soon())

    assert len(world.made) == 1
    assert link.heard_at == world.time


def test_a_connection_that_is_full_gets_company_and_no_more_than_that(world: _World) -> None:
    link = world.link(bounds=Bounds(connections=2, channels=1))
    refused: list[str] = []

    def third() -> Ended:
        with pytest.raises(NotDone, match="too much goes on") as refusal:
            link.run("c", b"", Deadline.after(0.01))
        refused.append(str(refusal.value))
        return DONE

    def second() -> Ended:
        world.answers.append(third)
        world.answers.append(lambda: DONE)
        third_answer = world.answers.pop(0)
        return third_answer()

    def first() -> Ended:
        world.answers.append(second)
        link.run("b", b"", soon())
        return DONE

    world.answers.append(first)
    link.run("a", b"", soon())

    assert refused
    assert len(world.made) == 2


def test_a_short_look_does_not_wait_for_the_work(world: _World) -> None:
    link = world.link(bounds=Bounds(connections=1, channels=1))

    def busy() -> Ended:
        return link.run("hello", b"", soon(), waits=False)

    world.answers.append(busy)
    assert link.run("work", b"", soon()) == DONE
    assert len(world.made) == 1


def test_what_was_idle_and_is_dead_is_replaced_unnoticed(world: _World) -> None:
    link = world.link()
    link.run("a", b"", soon())
    world.answers.append(_raise(Unreachable("no channel")))

    assert link.run("b", b"", soon()) == DONE

    assert [each.is_open for each in world.made] == [False, True]


def test_what_may_have_happened_is_not_repeated_and_its_connection_is_left(world: _World) -> None:
    link = world.link()
    link.run("a", b"", soon())
    world.answers.append(_raise(OutcomeUnknown("cut")))

    with pytest.raises(OutcomeUnknown):
        link.run("b", b"", soon())
    link.run("c", b"", soon())

    assert [each.is_open for each in world.made] == [False, True]


def test_a_machine_that_cannot_be_reached_is_left_alone_for_longer_each_time(
    world: _World,
) -> None:
    link = world.link()
    world.failure = Unreachable("refused", hint="start sshd")
    pauses = []

    for _ in range(8):
        with pytest.raises(Unreachable, match=r"^refused$"):
            link.run("a", b"", soon())
        with pytest.raises(Unreachable, match="refused; tried again in") as again:
            link.run("a", b"", soon())
        assert again.value.hint == "start sshd"
        pauses.append(float(str(again.value).split()[-2]))
        world.time += pauses[-1]
    world.failure = None
    link.run("a", b"", soon())

    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_too_little_time_is_not_held_against_a_machine(world: _World) -> None:
    link = world.link()
    world.failure = Unreachable("no time")
    with pytest.raises(Unreachable, match="time"):
        link.run("a", b"", Deadline.after(0))
    world.failure = None

    assert link.run("a", b"", soon()) == DONE


def test_a_refused_key_stays_a_refused_key(world: _World) -> None:
    link = world.link()
    world.failure = HostKeyRefused("not known", shown="ssh-ed25519 A", hint="pin it")
    with pytest.raises(HostKeyRefused):
        link.run("a", b"", soon())

    with pytest.raises(HostKeyRefused, match="tried again") as again:
        link.run("a", b"", soon())

    assert (again.value.shown, again.value.hint) == ("ssh-ed25519 A", "pin it")


def test_a_fork_opens_connections_of_its_own(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = world.link()
    link.run("a", b"", soon())
    monkeypatch.setattr("os.getpid", lambda: -1)

    link.run("a", b"", soon())

    assert [each.is_open for each in world.made] == [True, True]


def test_a_closed_link_keeps_no_connection_and_disturbs_none(world: _World) -> None:
    link = world.link()

    def closing() -> Ended:
        link.close()
        assert world.made[0].is_open
        return DONE

    world.answers.append(closing)
    link.run("a", b"", soon())
    assert [each.is_open for each in world.made] == [False]

    link.run("b", b"", soon())
    assert [each.is_open for each in world.made] == [False, False]
