"""Lines of the log say whose they are, and nothing of the task before."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from config.logs import configure_logging
from config.settings import Settings
from tasks import log_context
from workers.host.pump import Pump, ids_of


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a process of the role `control` logs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    configure_logging(Settings(log_format="json"), "control")
    yield text
    root.handlers[:], root.level = handlers, level
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def lines(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_line_is_json_and_says_the_role_in_every_thread(output: io.StringIO) -> None:
    structlog.get_logger("a").warning("one", n=1)
    thread = threading.Thread(target=lambda: structlog.get_logger("b").warning("two"))
    thread.start()
    thread.join()
    logging.getLogger("of.a.library").warning("three")
    assert [(each["event"], each["role"], each["level"]) for each in lines(output)] == [
        (event, "control", "warning") for event in ("one", "two", "three")
    ]


def test_a_task_binds_its_ids_and_leaves_none(output: io.StringIO) -> None:
    log = structlog.get_logger("tasks")
    sealed = {"keyId": "k", "sealed": "c2VjcmV0"}
    request = {"jobId": "j-1", "runId": "r-1", "payload": sealed}
    log_context.begin("request_scale", "t-1", {"request": request})
    log.warning("inside")
    log_context.begin("cancel_request", "t-2", {"job_id": "j-2", "reason": "why"})
    log.warning("inside another")
    log_context.end()
    log.warning("outside")
    first, second, third = lines(output)
    assert (first["task"], first["task_id"], first["job"], first["run"]) == (
        "request_scale", "t-1", "j-1", "r-1",
    )  # fmt: skip
    assert (second["task"], second["job"], "run" in second) == ("cancel_request", "j-2", False)
    assert not {"task", "task_id", "job", "run"} & third.keys()
    assert "c2VjcmV0" not in output.getvalue()


@dataclass(frozen=True)
class Row:
    agent_id: str
    scaler: str = "boxes"
    job_id: str | None = None
    revision_id: int = 3
    sealed_registry: str = "a-secret"


@dataclass(frozen=True)
class Order:
    row: Row


def test_a_step_at_a_backend_binds_its_row(output: io.StringIO) -> None:
    assert ids_of(Order(Row("a-1"))) == {"agent": "a-1", "scaler": "boxes", "revision": 3}
    waiting = [Order(Row("a-1", job_id="j-1")), Order(Row("a-2"))]

    def take(most: int) -> tuple[list[Order], bool]:
        taken, waiting[:] = waiting[:most], waiting[most:]
        return taken, bool(waiting)

    def act(order: Order) -> None:
        structlog.get_logger("backend").warning("acts")
        if order.row.agent_id == "a-2":
            raise RuntimeError("it broke")

    pump = Pump("starts", 1, take, act)
    pump.prime()
    while waiting:
        pump.prime()
    pump.close(wait=True)
    found = [(each["event"], each["agent"], each.get("job")) for each in lines(output)]
    assert found[0] == ("acts", "a-1", "j-1")
    assert found[1] == ("acts", "a-2", None)
    assert found[2][1:] == ("a-2", None)
    assert "a-secret" not in output.getvalue()
