"""An installation without brokers: a database, and workers that drive machines over SSH."""

from __future__ import annotations

import json
import os
import secrets
import signal
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from pydantic import SecretStr
from sqlalchemy import Engine, text

from config.settings import Settings
from kici_scaler.domain.scalers import BackendType
from kici_scaler.service import admit, reload, request, sweep
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from tests.support.waiting import eventually, processes_of
from workers.bare_metal import open_remote
from workers.fleet.ports import FleetPorts
from workers.host.host import BackendHost, HostOptions

PATIENT = 40.0
"""Seconds in which a machine on a busy host does anything."""


class Unheard:
    """Queues of machines where no broker is; rows are looked at without hints."""

    def __init__(self) -> None:
        self.consumed: set[str] = set()

    def consume(self, machine_id: str) -> None:
        """Remember it."""
        self.consumed.add(machine_id)

    def leave(self, machine_id: str) -> None:
        """Forget it."""
        self.consumed.discard(machine_id)


class Worker:
    """A backend worker of an installation, in this process."""

    def __init__(self, engine: Engine, installation_id: str, name: str, folder: Path) -> None:
        self.runtime = Runtime(engine, owner=name)
        self.queues = Unheard()
        settings = Settings(
            installation_id=installation_id,
            machine_id=name,
            state_dir=folder / name,
            database_url=SecretStr(""),
        )
        ports = FleetPorts(open_remote, self.queues)
        self.host = BackendHost(
            self.runtime, settings, HostOptions(BackendType.BARE_METAL, fleet=ports)
        )

    def open(self) -> Worker:
        """Begin."""
        self.host.open()
        return self

    def prime(self) -> None:
        """Take what waits on its own host and on the machines that it drives."""
        self.host.starts.prime()
        self.host.destroys.prime()
        for name in list(self.queues.consumed):
            site = self.host.site(name)
            if site is not None:
                site.prime()


class FleetHouse:
    """One installation: what it was asked for, what it holds, and who works for it."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.installation_id = f"test-{secrets.token_hex(4)}"
        self.runtime = Runtime(engine, owner="control")
        self.workers: list[Worker] = []

    def configure(self, *scalers: Mapping[str, Any]) -> None:
        """Put these scalers into force."""
        path = self.folder / "scalers.yaml"
        path.write_text(
            json.dumps({"version": 1, "globalMaxAgents": 1000, "scalers": list(scalers)})
        )
        reload.apply(self.runtime, reload.read(self.engine, path), author="test")

    def worker(self, name: str) -> Worker:
        """A worker that runs until the end of the test."""
        made = Worker(self.engine, self.installation_id, name, self.folder)
        self.workers.append(made)
        return made.open()

    def ask(self, *job_ids: str, labels: Sequence[str] = ("linux",)) -> None:
        """Ask for an agent for each job."""
        sealed = {"keyId": "k", "sealed": "c2VhbGVk"}
        request.submit(
            self.runtime,
            [
                parse_request(
                    {"jobId": each, "runId": "run", "labels": list(labels), "payload": sealed}
                )
                for each in job_ids
            ],
        )

    def tick(self) -> None:
        """What beat and hints would bring about."""
        sweep.sweep(self.runtime)
        admit.run_pass(self.runtime)
        for each in self.workers:
            each.prime()

    def rows(self, statement: str, **values: object) -> list[Any]:
        """Rows of a query."""
        with self.engine.connect() as connection:
            return list(connection.execute(text(statement), values))

    def machine(self, name: str) -> Any:
        """The row of a machine; None when there is none."""
        found = self.rows("SELECT * FROM machines WHERE machine_id = :name", name=name)
        return found[0] if found else None

    def becomes(self, name: str, state: str, within: float = PATIENT) -> Any:
        """The row of a machine, once it is in that state."""
        eventually(
            lambda: (row := self.machine(name)) is not None and row.state == state,
            within,
            why=lambda: f"machine {name}: {self.machine(name)}",
        )
        return self.machine(name)

    def spawns(self, state: str = "%") -> list[Any]:
        """The spawns in a state."""
        statement = "SELECT * FROM spawns WHERE state LIKE :state ORDER BY agent_id"
        return self.rows(statement, state=state)

    def settles(self, state: str, count: int, within: float = PATIENT) -> list[Any]:
        """The spawns, once so many are in that state; time goes on meanwhile."""

        def settled() -> bool:
            self.tick()
            return len(self.spawns(state)) == count

        states = "SELECT state, machine_id, count(*) FROM spawns GROUP BY 1, 2"
        eventually(settled, within, why=lambda: f"{self.rows(states)}; {self.waiting()}")
        return self.spawns(state)

    def waiting(self) -> list[str]:
        """Why requests wait."""
        reasons = "SELECT DISTINCT wait_reason FROM scale_requests WHERE state = 'waiting'"
        return [str(each.wait_reason) for each in self.rows(reasons)]

    def processes(self) -> list[psutil.Process]:
        """Every process that agents of this installation started."""
        return processes_of(self.installation_id)

    def close(self) -> None:
        """End the workers, and kill whatever a failed test left."""
        for each in self.workers:
            each.host.close()
        for process in self.processes():
            process.send_signal(signal.SIGKILL)


def scaler(name: str, program: str, machines: Sequence[Mapping[str, Any]], **more: Any) -> Any:
    """A bare-metal scaler with a fleet, as the scaler file has it."""
    return {
        "name": name,
        "type": "bare-metal",
        "maxAgents": 10,
        "maxConcurrentSpawns": 10,
        "machines": list(machines),
        "labelSets": [{"labels": ["linux"], "binaryPath": program}],
        **more,
    }


def sleeper(folder: Path, source: str = "exec sleep 600") -> str:
    """A program that stands for an agent and runs until it is ended."""
    path = folder / f"agent-{secrets.token_hex(4)}"
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(source)}\n")
    path.chmod(0o755)
    return os.fspath(path)
