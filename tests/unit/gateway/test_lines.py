"""A log line of an agent on its way to the log system."""

from __future__ import annotations

import io
import json
import threading

import pytest

from kici_scaler.gateway.lines import CUT_MARK, LineOrigin, LineOutput, clean, enrich
from tests.support.waiting import eventually

ORIGIN = LineOrigin("a1", run_id="r1", job_id="j1", source="bare-metal")
ADDED = {
    "service": "agent", "agentId": "a1", "runId": "r1", "jobId": "j1", "logsSource": "bare-metal",
}  # fmt: skip


def test_a_json_object_keeps_its_fields() -> None:
    assert enrich('{"level": "warn", "x": [1]}', ORIGIN) == {"level": "warn", "x": [1], **ADDED}


def test_who_it_came_from_overrides_what_it_says() -> None:
    line = '{"service": "other", "agentId": "forged", "jobId": "forged"}'
    assert enrich(line, ORIGIN) == ADDED


@pytest.mark.parametrize(
    "line", ["text", "", "[1]", "3", "null", '"x"', "{broken", '{"x": NaN}', "{" * 100_000]
)
def test_anything_else_becomes_a_message(line: str) -> None:
    assert enrich(line, ORIGIN) == {"level": "info", "message": line, **ADDED}


def test_what_is_not_known_is_left_out() -> None:
    record = enrich("x", LineOrigin("a1", run_id="", request_id="q1"))
    assert record == {
        "level": "info", "message": "x", "service": "agent", "agentId": "a1", "requestId": "q1",
    }  # fmt: skip


def test_text_is_cut_and_made_safe() -> None:
    assert clean("a\x00b") == "a\N{REPLACEMENT CHARACTER}b"
    assert clean("x" * 10, most=4) == "xxxx" + CUT_MARK
    assert clean("x" * 4, most=4) == "xxxx"


def test_records_are_written_as_json_lines_in_order() -> None:
    target = io.StringIO()
    output = LineOutput(target)
    output.start()
    output.put({"n": 1})
    output.put({"half": "\ud800"})
    output.stop()
    assert [json.loads(line) for line in target.getvalue().splitlines()] == [
        {"n": 1},
        {"half": "\ud800"},
    ]


class StuckTarget(io.StringIO):
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.released = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.released.wait(10)
        return super().write(text)


def test_a_stuck_reader_costs_lines_and_never_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kici_scaler.gateway.lines.MOST_WAITING", 3)
    target = StuckTarget()
    output = LineOutput(target)
    output.start()
    output.put({"n": 0})
    assert target.entered.wait(10)
    for number in range(1, 11):
        output.put({"n": number})
    target.released.set()
    output.stop()
    records = [json.loads(line) for line in target.getvalue().splitlines()]
    assert records == [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]


def test_a_gap_is_marked_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kici_scaler.gateway.lines.MOST_WAITING", 3)
    target = StuckTarget()
    output = LineOutput(target)
    output.start()
    output.put({"n": 0})
    assert target.entered.wait(10)
    for number in range(1, 6):
        output.put({"n": number})
    target.released.set()
    eventually(lambda: len(target.getvalue().splitlines()) == 4)
    output.put({"n": 6})
    output.stop()
    records = [json.loads(line) for line in target.getvalue().splitlines()]
    assert [record.get("n") for record in records] == [0, 1, 2, 3, None, 6]
    assert records[4]["droppedLines"] == 2
