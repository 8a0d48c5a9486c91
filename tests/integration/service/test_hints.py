"""Wishes to look at compute join the look that waits already."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import redis

from config.celery_settings import destroy_queue
from kici_scaler.broker import task_names
from kici_scaler.broker.hints import CeleryHints, sender
from kici_scaler.service.ports import Place

HERE = Place("bare-metal", "m1")
QUEUE = destroy_queue("bare-metal", "m1")
TASK = task_names.inspect_task("bare-metal")


@pytest.fixture
def hints(redis_url: str) -> Iterator[CeleryHints]:
    marks = redis.Redis.from_url(redis_url)
    with contextlib.closing(marks), sender(redis_url, "test") as app:
        yield CeleryHints(app, marks)


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
