"""A process loads what it needs: people wait for commands, and machines pay for memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVERS = ("sqlalchemy", "celery", "redis", "yaml", "paramiko", "fastapi", "alembic")
MACHINES = ("paramiko", "docker", "pyroute2", "httpx", "websockets", "fastapi")


@pytest.mark.parametrize(
    ("what", "heavy"),
    [
        pytest.param("kici_scaler.cli.main", SERVERS, id="a command that asks a gateway"),
        pytest.param(
            "tasks.app, tasks.admit, tasks.request, tasks.sweep, tasks.warm, tasks.backend",
            MACHINES,
            id="a worker that touches no machine",
        ),
    ],
)
def test_nothing_is_loaded_that_is_not_needed(what: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {what}; print(sorted(set({heavy}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
