"""The command line of every role."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.celery_settings import BACKEND_KINDS, CONTROL_KIND, queues_for
from kici_scaler.embedded import programs


def option(program: tuple[str, ...], name: str) -> str:
    return program[program.index(name) + 1]


@pytest.mark.parametrize("kind", [CONTROL_KIND, *BACKEND_KINDS])
def test_a_worker_consumes_the_queues_of_its_kind(kind: str) -> None:
    program = programs.worker_program(kind, "box7")
    assert option(program, "--queues").split(",") == list(queues_for(kind, "box7"))
    assert {"--without-gossip", "--without-mingle", "--task-events"} <= set(program)
    assert programs.worker_environment(kind) == {"KICI_WORKER_KIND": kind}


def test_control_runs_in_processes_that_can_be_killed_and_backends_in_threads() -> None:
    assert option(programs.worker_program("control", "m"), "--pool") == "prefork"
    assert option(programs.worker_program("container", "m"), "--pool") == "threads"
    assert option(programs.worker_program("container", "m", 3), "--concurrency") == "3"


def test_workers_of_one_kind_never_share_a_name() -> None:
    names = {option(programs.worker_program("event", "m"), "--hostname") for _ in range(20)}
    assert len(names) == 20


def test_flower_looks_and_does_not_touch() -> None:
    program = programs.flower_program("127.0.0.1", 5555)
    assert "--read_only" in program
    assert "--enable_events=False" in program
    assert not any("auth" in argument for argument in program)
    assert programs.flower_environment("secret") == {"FLOWER_BASIC_AUTH": "kici:secret"}


def test_beat_keeps_its_schedule_with_the_state(tmp_path: Path) -> None:
    assert str(tmp_path / "beat-schedule") in programs.beat_program(tmp_path)
