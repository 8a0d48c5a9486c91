"""The example of a provisioner does what its page promises, as one command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import ROOT

LONGEST = 150.0
"""Seconds: three short jobs, and the start and end of everything on a busy machine."""


@pytest.mark.timeout(LONGEST + 20)
def test_three_jobs_run_on_machines_that_come_and_go(tmp_path: Path) -> None:
    own = {key: value for key, value in os.environ.items() if not key.startswith("KICI_")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.event_provisioner"],
        env={**own, "TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")},
        cwd=ROOT, capture_output=True, text=True, timeout=LONGEST, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 jobs succeeded; machines left: none" in done.stdout
    assert done.stdout.count("runs on machine") == 3
    assert not list(tmp_path.glob("kici-*"))
