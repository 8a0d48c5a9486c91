"""A package of somebody else brings a backend, and the suite checks it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.source import ROOT

PACKAGE = """
    from tests.conformance.null import NullHarness
    from workers.null.backend import NullBackend
    from workers.null.ledger import Ledger


    class CloudBackend(NullBackend):
        {method}


    def open_backend(context):
        return CloudBackend(Ledger(context.state_dir / "null-ledger.sqlite"))


    class CloudHarness(NullHarness):
        backend_type = "my-cloud"
        kill_rounds = 5
"""

ENTRY_POINTS = """
    [kici_scaler.backends]
    my-cloud = my_cloud:open_backend

    [kici_scaler.conformance]
    my-cloud = my_cloud:CloudHarness
"""


def _suite(folder: Path, method: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the suite beside a package that is installed in that folder."""
    (folder / "my_cloud.py").write_text(textwrap.dedent(PACKAGE).format(method=method))
    info = folder / "my_cloud-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-cloud\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(ENTRY_POINTS))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.run(
        [*command, "tests/conformance", "--backend", "my-cloud", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_good_backend_of_another_package_passes_the_suite(tmp_path: Path) -> None:
    done = _suite(tmp_path, "pass")

    assert done.returncode == 0, done.stdout
    assert "bare-metal" not in done.stdout


@pytest.mark.parametrize(
    ("method", "caught_by"),
    [
        ("def destroy(self, agent, deadline): pass", "test_destroy.py"),
        ("def inventory(self, installation_id, deadline): return ()", "test_looking.py"),
    ],
)
def test_a_bad_backend_of_another_package_fails_it(
    tmp_path: Path, method: str, caught_by: str
) -> None:
    done = _suite(tmp_path, method, "-x", f"tests/conformance/{caught_by}")

    assert done.returncode == 1, done.stdout
