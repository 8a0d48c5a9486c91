"""The tally of a process: nothing is counted twice, and nothing is lost between its threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from kici_scaler.metrics import TALLY, Tally, count, declared

REFUSALS = declared.SPAWN_REFUSALS
LOCKS = declared.CAP_LOCK_FAILURES


def test_counts_add_up_by_metric_and_labels() -> None:
    tally = Tally()
    tally.add(LOCKS, "contended")
    tally.add(LOCKS, "contended", n=2)
    tally.add(LOCKS, "unreachable")
    assert tally.take() == {(LOCKS, ("contended",)): 3, (LOCKS, ("unreachable",)): 1}


def test_what_was_taken_is_not_taken_again() -> None:
    tally = Tally()
    tally.add(REFUSALS)
    assert tally.take()
    assert tally.take() == {}


def test_what_could_not_be_stored_comes_on_top_of_what_followed() -> None:
    tally = Tally()
    tally.add(REFUSALS, n=2)
    taken = tally.take()
    tally.add(REFUSALS)
    tally.give_back(taken)
    assert tally.take() == {(REFUSALS, ()): 3}


def test_nothing_counted_is_nothing_to_store() -> None:
    tally = Tally()
    tally.add(REFUSALS, n=0)
    assert tally.take() == {}


def test_threads_lose_nothing() -> None:
    tally = Tally()

    def add_many() -> None:
        for _ in range(1000):
            tally.add(REFUSALS)

    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(add_many)
    assert tally.take() == {(REFUSALS, ()): 8000}


def test_a_forked_process_starts_anew() -> None:
    TALLY.take()
    count(REFUSALS)
    child = os.fork()
    if child == 0:
        os._exit(len(TALLY.take()))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert TALLY.take() == {(REFUSALS, ()): 1}
