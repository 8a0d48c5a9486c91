"""Hints of all processes: what would find nothing more joins the one that waits already."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from config.celery_settings import ADMIT, WARM, destroy_queue
from kici_scaler.broker import task_names
from kici_scaler.broker.hints import (
    DEBOUNCE_MILLIS,
    CeleryHints,
    sender,
    short_lived_client,
)
from kici_scaler.service.ports import Place, Turn
from tests.support.waiting import free_port

HERE = Place("bare-metal", "m1")
QUEUE = destroy_queue("bare-metal", "m1")
TASK = task_names.inspect_task("bare-metal")


@pytest.fixture
def hints(redis_url: str) -> Iterator[CeleryHints]:
    marks = redis.Redis.from_url(redis_url)
    with contextlib.closing(marks), sender(redis_url, "test") as app:
        made = CeleryHints(app, marks)
        _connect(made)
        yield made


def _tasks(hints: CeleryHints) -> int:
    return sum(hints.marks.llen(key) for key in hints.marks.keys(f"*{QUEUE}*")
               if hints.marks.type(key) == b"list")  # fmt: skip


def test_while_a_look_waits_others_join_it(hints: CeleryHints) -> None:
    hints.inspect(HERE, ["a", "b"])
    hints.inspect(HERE, ["b", "c"])
    hints.inspect(HERE, ["d"])
    assert _tasks(hints) == 1
    hints.clear(TASK, QUEUE)
    assert sorted(hints.waiting_looks(TASK, QUEUE)) == ["b", "c", "d"]
    assert hints.waiting_looks(TASK, QUEUE) == []
    hints.inspect(HERE, ["e"])
    assert _tasks(hints) == 2


def test_wishes_that_redis_lost_are_nobodys_error(hints: CeleryHints) -> None:
    hints.inspect(HERE, ["a"])
    hints.inspect(HERE, ["b"])
    hints.marks.flushall()
    assert hints.waiting_looks(TASK, QUEUE) == []


def _passes(hints: CeleryHints) -> list[dict[str, Any]]:
    """The messages that wait for whoever decides."""
    lists = [key for key in hints.marks.keys(f"*{ADMIT}*") if hints.marks.type(key) == b"list"]
    return [json.loads(each) for key in lists for each in hints.marks.lrange(key, 0, -1)]


def test_capacity_that_is_freed_in_many_processes_is_one_pass_a_moment_later(
    hints: CeleryHints, redis_url: str
) -> None:
    with sender(redis_url, "other") as app:
        other = CeleryHints(app, hints.marks)
        _connect(other)
        before = datetime.now(UTC)
        hints.admit(soon=True)
        after = datetime.now(UTC)
        for _ in range(5):
            other.admit(soon=True)
            hints.admit(soon=True)
        other.admit()
        (message,) = _passes(hints)
        due = datetime.fromisoformat(message["headers"]["eta"])
        pause = timedelta(milliseconds=DEBOUNCE_MILLIS)
        assert before + pause <= due <= after + pause
        hints.clear(task_names.ADMIT_WAITING, ADMIT)
        other.admit()
        assert len(_passes(hints)) == 2, "what is freed from now on is decided by another"


def test_what_is_left_to_others_is_seen_in_a_moment_even_if_freed_capacity_waits_longer(
    hints: CeleryHints,
) -> None:
    _connect(hints)
    hints.admit(soon=True)
    before = datetime.now(UTC)
    assert hints.admit_left(Turn(False))
    assert hints.admit_left(Turn(False)), "one is on its way"
    left, _ = _passes(hints)
    due = datetime.fromisoformat(left["headers"]["eta"])
    assert before < due < before + timedelta(milliseconds=DEBOUNCE_MILLIS)


def test_what_is_left_while_the_mutex_rests_is_seen_after_the_rest(hints: CeleryHints) -> None:
    _connect(hints)
    before = datetime.now(UTC)
    hints.admit_left(Turn(False, rests_for=0.4))
    (message,) = _passes(hints)
    due = datetime.fromisoformat(message["headers"]["eta"])
    assert due > before + timedelta(seconds=0.4)


def test_what_is_left_once_a_pass_began_is_seen_by_another(hints: CeleryHints) -> None:
    _connect(hints)
    hints.admit_left(Turn(False))
    hints.clear(task_names.ADMIT_WAITING, ADMIT)
    hints.admit_left(Turn(False))
    assert len(_passes(hints)) == 2


def test_who_cannot_send_says_so(hints: CeleryHints) -> None:
    away = CeleryHints(hints.app, short_lived_client(f"redis://127.0.0.1:{free_port()}/0"))
    assert not away.admit_left(Turn(False))
    assert not away.admit_left(Turn(False)), "it is left alone for a while"


def _connect(hints: CeleryHints) -> None:
    """The first message of a process may take longer than the mark of it lasts."""
    hints.fill()
    hints.clear(task_names.WARM_FILL, WARM)
