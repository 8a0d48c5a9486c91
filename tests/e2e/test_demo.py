"""The demo shows what it promises, and says so by its exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import ROOT

JOBS = 20
LONGEST = 230.0
"""Seconds: its own bound, and the start and end of everything on a busy machine."""


@pytest.mark.timeout(LONGEST + 20)
def test_every_job_ends_as_it_should_and_nothing_is_left(tmp_path: Path) -> None:
    own = {key: value for key, value in os.environ.items() if not key.startswith("KICI_")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        env={**own, "TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")},
        cwd=ROOT, capture_output=True, text=True, timeout=LONGEST, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.rstrip().endswith("as it should")]
    table = [line for line in rows if re.search(r"scaler-bare-metal-\w+ ", line)]
    assert len(table) == JOBS
    assert [line for line in table if "victim" in line and "ended by signal 9" in line]
    assert sum("exit code 3" in line for line in table) >= 5
    killed = {line for line in done.stdout.splitlines() if line.startswith("kill -9 of ")}
    assert len(killed) == 2
    assert re.search(r"^gateway +http://", done.stdout, re.MULTILINE)
    assert re.search(r"^Flower +http://", done.stdout, re.MULTILINE)
    assert "no process is left" in done.stdout
    assert not list(tmp_path.glob("kici-*"))
