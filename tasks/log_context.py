"""What log lines of a task are bound to: its name and id, and the ids that it was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

IDS: Final = {
    "job_id": "job",
    "run_id": "run",
    "agent_id": "agent",
    "machine": "machine",
    "delivery_id": "delivery",
}
"""Arguments of tasks that are ids, and what a line calls them."""


def begin(name: str, task_id: str, arguments: object) -> None:
    """Bind a task's ids, and nothing else: whatever an earlier task left in this thread goes."""
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(task=name, task_id=task_id, **_ids(arguments))


def end() -> None:
    """Bind nothing any more."""
    structlog.contextvars.clear_contextvars()


def _ids(arguments: object) -> dict[str, str]:
    """The ids among a task's arguments; sealed parts and everything else stay out."""
    given = arguments if isinstance(arguments, Mapping) else {}
    request = given.get("request")
    if isinstance(request, Mapping):
        given = {"job_id": request.get("jobId"), "run_id": request.get("runId"), **given}
    return {word: given[name] for name, word in IDS.items() if isinstance(given.get(name), str)}
