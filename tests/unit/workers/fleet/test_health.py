"""What signs of life, and their absence, come to."""

from __future__ import annotations

from workers.errors import NotDone, Unreachable, Untrusted
from workers.fleet.health import Health

UP = Health().after_answer("boot-1", 0.0)


def test_one_look_that_comes_to_nothing_proves_nothing() -> None:
    once = UP.after_miss(NotDone("slow"))

    assert once.answers
    assert not once.after_miss(Unreachable("gone")).answers


def test_an_answer_in_between_starts_the_count_anew() -> None:
    health = UP.after_miss(NotDone("slow")).after_answer("boot-1", 0.0)

    assert health.after_miss(NotDone("slow")).answers


def test_a_key_that_is_not_trusted_is_certain() -> None:
    health = UP.after_miss(Untrusted("another key", hint="look at it"))

    assert not health.answers
    assert health.why == "another key; look at it"


def test_it_came_back_when_it_was_silent_or_was_started_anew() -> None:
    silent = UP.after_miss(NotDone("a")).after_miss(NotDone("b"))

    assert UP.came_back(Health())
    assert silent.after_answer("boot-1", 0.0).came_back(silent)
    assert UP.after_answer("boot-2", 0.0).came_back(UP)
    assert not UP.after_answer("boot-1", 0.0).came_back(UP)
    assert not silent.came_back(UP)
