"""A whole running installation for tests: every process real, on a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Engine, text

from examples.demo.processes import described, end, processes_of
from kici_scaler.cli import main
from kici_scaler.cli.operator_client import OperatorClient
from kici_scaler.client import DispatcherClient, JobRequest, JobResult, Payload
from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.ports import LOOPBACK
from kici_scaler.store import settings
from kici_scaler.store.engine import make_engine, transaction
from tests.support.source import ROOT
from tests.support.waiting import eventually

COMMAND = (sys.executable, "-m", "kici_scaler.cli.main")
DEMO = ROOT / "config" / "scalers" / "demo.yaml"
ROLES = ("control", "bare-metal", "beat", "gateway")
LABELS = ("linux", "demo")
LONG = 90.0
"""Seconds in which anything of this system happens on a machine that does other things too."""


@dataclass(frozen=True)
class Site:
    """What a test needs of the installation."""

    installation: Installation
    folder: Path
    scaler: DispatcherClient
    gateway: OperatorClient
    engine: Engine

    @property
    def environment(self) -> dict[str, str]:
        """Of a command that shall find this installation and no other."""
        profile = self.installation.profile
        own = {key: value for key, value in os.environ.items() if not key.startswith("KICI_")}
        return {
            **own,
            "XDG_STATE_HOME": str(self.folder / "state"),
            "KICI_URL": str(profile.gateway_url),
            "KICI_API_KEY": profile.api_key_path.read_text().strip(),
        }

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a `kici-scaler` command to its end."""
        return subprocess.run(
            [*COMMAND, *arguments], env=self.environment, cwd=self.folder, input=stdin,
            capture_output=True, text=True, timeout=LONG, check=False,
        )  # fmt: skip

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a `kici-scaler` command to its end in this process, which is quicker."""
        output, errors = StringIO(), StringIO()
        with (
            patch.dict(os.environ, self.environment, clear=True),
            patch.object(sys, "argv", ["kici-scaler", *arguments]),
            redirect_stdout(output),
            redirect_stderr(errors),
        ):
            code = _exit_code_of(main.run)
        return subprocess.CompletedProcess(
            arguments, code, stdout=output.getvalue(), stderr=errors.getvalue()
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a `kici-scaler` command."""
        return subprocess.Popen(
            [*COMMAND, *arguments], env=self.environment, cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def submit(self, job_id: str, script: str) -> None:
        """Ask for an agent for a shell script."""
        payload = Payload(("sh", "-c", script))
        self.scaler.request(JobRequest(job_id=job_id, run_id="e2e", labels=LABELS, payload=payload))

    def result(self, job_id: str) -> JobResult:
        """Wait for a job's end."""
        return self.scaler.wait(job_id, LONG)

    def printed(self, job_id: str) -> list[str]:
        """The lines of a job that is over."""
        return [line.text for line in self.scaler.log(job_id)]

    def agents(self) -> list[Mapping[str, Any]]:
        """The live agents, as the gateway tells."""
        found: list[Mapping[str, Any]] = self.gateway.get("/v1/agents")["agents"]
        return found

    def agent_of(self, job_id: str) -> Mapping[str, Any]:
        """The agent that runs a job, once it does."""
        found = eventually(
            lambda: [each for each in self.agents()
                     if each["jobId"] == job_id and each["state"] == "busy"],
            LONG,
            why=lambda: f"{job_id}: {self.scaler.get(job_id)}",
        )  # fmt: skip
        return found[0]

    def spawns_in(self, state: str) -> list[str]:
        """Agents in a state, read from the rows: quicker than any other way."""
        with self.engine.connect() as connection:
            rows = connection.execute(
                text("SELECT agent_id FROM spawns WHERE state = :state"), {"state": state}
            )
            return list(rows.scalars())

    def expect_no_agent_left(self) -> None:
        """Wait until no agent lives: no row, and no process on the machine."""
        places = self.folder / "data" / "machine" / "bare-metal"
        eventually(
            lambda: not self.agents() and not processes_of(places),
            LONG,
            why=lambda: f"{self.agents()}; {[described(each) for each in processes_of(places)]}",
        )


def _exit_code_of(command: Callable[[], None]) -> int:
    try:
        command()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@contextmanager
def open_site(
    windows: Mapping[str, float] | None = None,
    scaler_file: Path = DEMO,
    *,
    roles: tuple[str, ...] = ROLES,
    host: str = LOOPBACK,
) -> Iterator[Site]:
    """Start everything; all of it is gone at the end, and that is checked.

    Args:
        windows: live settings that differ from the defaults, in seconds.
        host: where the gateway listens.
    """
    folder = make_temporary_home("kici-e2e-")
    plan = Plan(
        roles=roles,
        scaler_file=scaler_file,
        host=host,
        durable=False,
        environment={"KICI_LOG_FORMAT": "human"},
    )
    try:
        with _running(folder, windows or {}, plan) as site:
            yield site
            site.expect_no_agent_left()
        left = processes_of(folder)
        assert not left, [described(each) for each in left]
    finally:
        end(processes_of(folder))
        shutil.rmtree(folder)


@contextmanager
def _running(folder: Path, windows: Mapping[str, float], plan: Plan) -> Iterator[Site]:
    with Installation(plan, folder / "data") as installation:
        profile = installation.profile
        url, key = str(profile.gateway_url), profile.api_key_path.read_text().strip()
        engine = make_engine(
            profile.database_url.get_secret_value(), application="e2e", pool_size=2
        )
        with transaction(engine) as connection:
            for name, seconds in windows.items():
                settings.put(connection, name, seconds, changed_by="e2e")
        with (
            DispatcherClient(url, key) as scaler,
            OperatorClient(url, key, answer_within=LONG) as gateway,
        ):
            yield Site(installation, folder, scaler, gateway, engine)
        engine.dispose()
