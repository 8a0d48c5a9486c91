"""A small installation: servers, a schema, keys, a scaler file, and roles as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from kici_scaler.cli.main import app
from kici_scaler.embedded import programs
from kici_scaler.embedded.redis import EmbeddedRedis
from kici_scaler.sealing import ensure_keys
from kici_scaler.service import reload
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import migrate
from kici_scaler.store.engine import make_engine
from tests.support.servers import Databases
from tests.support.source import ROOT
from tests.support.waiting import eventually

SCALERS = """
version: 1
scalers:
  - name: local
    type: bare-metal
    maxAgents: 4
    labelSets: [{labels: [linux, demo], binaryPath: "builtin:agent"}]
"""


@dataclass
class Role:
    """A running role and what it wrote."""

    process: subprocess.Popen[bytes]
    log_file: Path

    def log(self) -> str:
        """What it wrote."""
        return self.log_file.read_text()

    def end(self) -> None:
        """`kill -9`."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Place:
    """What an installation's environment names, and the roles that were started in it."""

    folder: Path
    environment: Mapping[str, str]
    engine: Engine
    stack: ExitStack = field(default_factory=ExitStack)

    def start(self, name: str, program: tuple[str, ...], **more: str) -> Role:
        """Start a role of it, without waiting for anything."""
        log_file = self.folder / f"{name}.log"
        others = {key: value for key, value in os.environ.items() if not key.startswith("KICI_")}
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                program, cwd=ROOT, env={**others, **self.environment, **more},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        role = Role(process, log_file)
        self.stack.callback(role.end)
        return role

    def run(self, *arguments: str, **changed: str) -> Result:
        """A command in this environment, or one that differs; '' takes a variable away."""
        merged = {**self.environment, **changed}
        gone = [key for key in os.environ if key.startswith("KICI_") and key not in merged]
        environment = {**dict.fromkeys(gone), **{k: v or None for k, v in merged.items()}}
        return CliRunner().invoke(app, list(arguments), env=environment)

    def doctor(self, **changed: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """Exit code and findings of `kici-scaler doctor`."""
        done = self.run("doctor", "--json", **changed)
        rows = json.loads(done.output)["rows"]
        return done.exit_code, {row["name"]: row for row in rows}


@pytest.fixture(scope="module")
def place(
    databases: Databases, redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Everything but the roles."""
    folder = tmp_path_factory.mktemp("place")
    url = databases.create()
    migrate.upgrade(url)
    keys = folder / "seal-keys.json"
    ensure_keys(keys)
    scalers = folder / "scalers.yaml"
    scalers.write_text(SCALERS)
    engine = make_engine(url, application="test", pool_size=2)
    reload.apply(Runtime(engine, "test"), reload.read(engine, scalers), author="test")
    environment = {
        "KICI_DATABASE_URL": url,
        "KICI_REDIS_URL": redis_server.url,
        "KICI_SEAL_KEYS_PATH": str(keys),
        "KICI_SCALER_CONFIG_PATH": str(scalers),
        "KICI_STATE_DIR": str(folder / "state"),
        "XDG_STATE_HOME": str(folder / "nothing-runs-here"),
    }
    made = Place(folder, environment, engine)
    with made.stack:
        yield made
    engine.dispose()
    databases.drop(url)


@pytest.fixture(scope="module")
def served(place: Place) -> Place:
    """The same with a control worker and a beat that do their work."""
    ready = {name: place.folder / f"{name}.ready" for name in ("control", "beat")}
    roles = (
        place.start("control", programs.worker_program("control", "m1"),
                    KICI_READY_FILE=str(ready["control"]),
                    **programs.worker_environment("control")),
        place.start("beat", programs.beat_program(place.folder),
                    KICI_READY_FILE=str(ready["beat"])),
    )  # fmt: skip
    eventually(
        lambda: all(each.exists() for each in ready.values()),
        60,
        why=lambda: "\n".join(role.log()[-2_000:] for role in roles),
    )
    eventually(lambda: place.run("health", "control").exit_code == 0, 60, why=roles[0].log)
    return place
