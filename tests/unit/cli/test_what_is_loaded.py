"""A command loads what it needs: most only ask a gateway, and people wait for them."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("sqlalchemy", "celery", "redis", "yaml", "paramiko", "fastapi", "alembic")


def test_a_command_that_asks_a_gateway_loads_no_server_and_no_file_format() -> None:
    code = f"import sys, kici_scaler.cli.main; print(sorted(set({HEAVY}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
