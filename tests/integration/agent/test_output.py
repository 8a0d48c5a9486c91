"""A job's output: whole, in order, bounded, and never in the way of the connection."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from kici_scaler.agent.lines import BATCH_LINES, HELD_BYTES, HELD_LINES
from kici_scaler.agent.protocol import MAX_LINE_BYTES, JobCancel, JobStatus, Log, encode
from tests.integration.agent.conftest import StartAgent
from tests.support.scripted_gateway import ScriptedGateway
from tests.support.waiting import eventually

COUNT = """
import pathlib, sys
for number in range({lines}):
    print("line", number, "x" * {width})
    if number % 1000 == 0:
        pathlib.Path({progress!r}).write_text(str(number))
pathlib.Path({progress!r}).write_text("done")
"""


def test_much_output_arrives_whole_and_in_order(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("seq", "200000")
    assert line.finish().status is JobStatus.SUCCEEDED

    assert line.output() == [str(number) for number in range(1, 200_001)]
    assert [log.seq for log in line.logs()] == list(range(1, len(line.logs()) + 1))
    assert max(len(log.lines) for log in line.logs()) <= BATCH_LINES


def test_a_long_line_is_cut_and_the_next_one_is_whole(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    line = gateway.accept()
    line.welcome()
    line.start(sys.executable, "-c", "print('ä' * 3_000_000); print('after')")
    line.finish()

    long, after = line.output()
    assert long == "ä" * (MAX_LINE_BYTES // 2) + " [line cut here]"
    assert after == "after"


def test_output_that_is_no_text_and_no_line_still_arrives(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    line = gateway.accept()
    line.welcome()
    line.start("printf", r"\377\000\r\n\nno end of line")
    line.finish()

    assert line.output() == ["\ufffd\0", "", "no end of line"]


def test_messages_stay_within_what_the_gateway_announced(
    gateway: ScriptedGateway, start_agent: StartAgent
) -> None:
    start_agent()
    line = gateway.accept()
    line.welcome(max_message_bytes=16 << 10)
    line.start(sys.executable, "-c", r"print('\x01' * 60_000); print('\x01' * 900)")
    line.finish()

    assert max(len(encode(log).encode()) for log in line.logs()) <= 16 << 10
    long, short = line.output()
    assert long.startswith("\x01" * 2000)
    assert long.endswith("[line cut here]")
    assert short == "\x01" * 900


def test_a_command_waits_for_a_gateway_that_does_not_read(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    progress, lines, width = tmp_path / "progress", 60_000, 1_000
    agent = start_agent()
    line = gateway.accept()
    line.welcome()
    program = COUNT.format(lines=lines, width=width, progress=str(progress))
    line.start(sys.executable, "-c", program)

    _wait_until_it_stands_still(progress)
    assert progress.read_text() != "done"
    assert psutil.Process(agent.pid).memory_info().rss < 150 << 20

    assert line.finish().status is JobStatus.SUCCEEDED
    assert [int(text.split()[1]) for text in line.output()] == list(range(lines))


def test_a_command_that_may_not_wait_loses_lines_and_says_how_many(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    progress, lines, width = tmp_path / "progress", 60_000, 1_000
    agent = start_agent(KICI_BACKPRESSURE_MODE="drop")
    line = gateway.accept()
    line.welcome()
    program = COUNT.format(lines=lines, width=width, progress=str(progress))
    line.start(sys.executable, "-c", program)

    eventually(lambda: progress.exists() and progress.read_text() == "done", 60)
    assert psutil.Process(agent.pid).memory_info().rss < 150 << 20
    assert line.finish().status is JobStatus.SUCCEEDED

    seen = [int(text.split()[1]) for text in line.output()]
    gaps = [int(text[1:].split()[0]) for text in line.output("agent")]
    assert gaps
    assert len(seen) + sum(gaps) == lines
    assert seen == sorted(seen)
    assert len(seen) * width < 2 * HELD_BYTES + (8 << 20)


def test_a_command_may_be_cancelled_while_its_output_waits(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path
) -> None:
    progress = tmp_path / "progress"
    start_agent()
    line = gateway.accept()
    line.welcome()
    program = COUNT.format(lines=10 * HELD_LINES, width=1_000, progress=str(progress))
    line.start(sys.executable, "-c", program)
    _wait_until_it_stands_still(progress)
    line.send(JobCancel("job-1", "no longer needed"))

    result = line.finish()
    assert (result.status, result.error) == (JobStatus.CANCELLED, "no longer needed")


def _wait_until_it_stands_still(progress: Path) -> None:
    """Until the command wrote nothing for many looks in a row."""
    seen: list[str] = []

    def stands_still() -> bool:
        seen.append(progress.read_text() if progress.exists() else "")
        return len(seen) > 25 and seen[-1] != "" and len(set(seen[-25:])) == 1

    eventually(stands_still, 60)


@pytest.mark.parametrize("mode", ["pause", "drop"])
def test_output_comes_while_the_command_runs(
    gateway: ScriptedGateway, start_agent: StartAgent, tmp_path: Path, mode: str
) -> None:
    go_on = tmp_path / "go-on"
    start_agent(KICI_BACKPRESSURE_MODE=mode)
    line = gateway.accept()
    line.welcome()
    line.start("sh", "-c", f"echo now; while [ ! -e {go_on} ]; do sleep 0.05; done; echo later")

    assert line.expect(Log).lines == ("now",)
    go_on.touch()
    line.finish()
    assert line.output() == ["now", "later"]
