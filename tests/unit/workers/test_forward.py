"""Following output: no line is lost, split, doubled or garbled."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.waiting import eventually
from workers.bare_metal.supervisor.output import Output
from workers.forward import (
    LINE_LIMIT,
    LOST,
    TRUNCATED,
    AgentLogForwarder,
    FileTail,
    LineSplitter,
    LogOwner,
    forward_line,
    tail_file,
)


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=30)),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_lines_survive_any_cut_of_their_bytes(lines: list[str], sizes: list[int]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    splitter = LineSplitter()
    found: list[str] = []
    for size in itertools.cycle(sizes):
        found += splitter.feed(content[:size])
        content = content[size:]
        if not content:
            break

    assert found == [line for line in lines if line]
    assert splitter.finish() == []


def test_an_unfinished_line_is_given_at_the_end() -> None:
    splitter = LineSplitter()

    assert splitter.feed(b"one\ntw") == ["one"]
    assert splitter.finish() == ["tw"]


def test_a_line_too_long_is_cut_and_its_rest_skipped() -> None:
    splitter = LineSplitter()

    found = splitter.feed(b"x" * LINE_LIMIT) + splitter.feed(b"yyy") + splitter.feed(b"zzz\nnext\n")

    assert found == ["x" * LINE_LIMIT + TRUNCATED, "next"]


def test_a_line_of_just_the_limit_is_whole() -> None:
    assert LineSplitter().feed(b"x" * LINE_LIMIT + b"\n") == ["x" * LINE_LIMIT]


def test_a_cut_never_halves_a_character() -> None:
    [line] = LineSplitter(limit=4).feed("aäöü\n".encode())

    assert line == "aä" + TRUNCATED


def test_a_missing_file_is_made_and_followed(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    tail = FileTail(path)

    assert list(tail.read()) == []
    path.write_text("one\n\ntwo\nthr")
    assert list(tail.read()) == ["one", "two"]
    with path.open("a") as file:
        file.write("ee\n")
    assert list(tail.read()) == ["three"]


def test_a_file_that_is_turned_over_is_followed_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    output = Output(path, limit=64)
    tail = FileTail(path)
    lines = [f"line {number:03}" for number in range(200)]
    found: list[str] = []

    for line in lines:
        output.write(f"{line}\n".encode())
        found += tail.read()

    assert found == lines


def test_a_file_turned_over_twice_between_looks_says_that_lines_are_missing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "output.log"
    output = Output(path, limit=64)
    tail = FileTail(path)
    for number in range(40):
        output.write(f"line {number:03}\n".encode())

    found = list(tail.read())

    assert LOST in found
    assert found[-1].endswith("ne 039")


def test_a_tail_gives_what_is_left_when_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    stop = Event()
    found: list[str] = []
    reader = Thread(target=lambda: found.extend(tail_file(path, stop)))
    reader.start()
    eventually(path.exists)
    path.write_text("one\ntwo\npart")
    eventually(lambda: len(found) == 2 or not reader.is_alive(), why="lines were not given")

    stop.set()
    reader.join()

    assert found == ["one", "two", "part"]


OWNER = LogOwner("agent-1", run_id="run-1", job_id="", source="vm")


def test_a_record_keeps_its_fields_and_says_whose_it_is() -> None:
    said = '{"level": "warn", "agentId": "forged", "extra": [1]}'

    assert forward_line(said, OWNER) == {
        "level": "warn",
        "extra": [1],
        "service": "agent",
        "agentId": "agent-1",
        "runId": "run-1",
        "logsSource": "vm",
    }


@pytest.mark.parametrize("said", ["plain text", "[1, 2]", "17", "null", '"text"', "{broken"])
def test_anything_else_becomes_a_message(said: str) -> None:
    record = forward_line(said, LogOwner("agent-1"))

    assert record == {"level": "info", "message": said, "service": "agent", "agentId": "agent-1"}


def test_every_line_is_passed_on_until_there_are_no_more() -> None:
    passed: list[str] = []
    forwarder = AgentLogForwarder(passed.append)

    forwarder.forward(iter(()), OWNER)
    forwarder.forward(_lines(), OWNER)

    assert [json.loads(line)["message"] for line in passed] == ["one", "zwölf"]
    assert all("\n" not in line for line in passed)


def _lines() -> Iterator[str]:
    yield "one"
    yield "zwölf"
