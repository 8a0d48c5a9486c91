"""A house with a front: real servers, a schema, a configuration, real gateway processes.

The test itself plays the backend worker: it takes what was reserved, records it as made,
and starts the agents.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import redis
from sqlalchemy import text

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.sealing import SealingKeys, seal
from kici_scaler.service import start
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.engine import transaction
from tests.support.agent_process import AgentProcess, agent_process
from tests.support.waiting import eventually, free_port

MACHINE = "m1"
SCALERS = """
version: 1
globalMaxAgents: 1000
scalers:
  - name: local
    type: bare-metal
    maxAgents: 1000
    maxConcurrentSpawns: 100
    labelSets:
      - labels: [linux, demo]
        binaryPath: builtin:agent
"""


@dataclass
class GatewayProcess:
    """A running gateway and what it wrote."""

    process: subprocess.Popen[bytes]
    port: int
    ready_file: Path
    log_file: Path
    out_file: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def agents_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/agents"

    def log(self) -> str:
        return self.log_file.read_text()

    def lines(self, agent_id: str) -> list[dict[str, Any]]:
        """The log records of an agent that it wrote."""
        records = [json.loads(line) for line in self.out_file.read_text().splitlines()]
        return [record for record in records if record["agentId"] == agent_id]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, within: float = 20.0) -> int:
        """An orderly stop; its exit code."""
        self.process.terminate()
        return self.process.wait(within)


def job_of(order: start.StartOrder) -> str:
    """The job that a spawn was made for."""
    assert order.row.job_id is not None
    return order.row.job_id


def log_of(client: httpx.Client, job_id: str, **query: str) -> list[dict[str, Any]]:
    """The records of a job's log."""
    text = client.get(f"/v1/requests/{job_id}/log", params=query).text
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def lines_of(records: list[dict[str, Any]]) -> list[str]:
    """The lines in records of a log."""
    return [line for record in records for line in record["lines"]]


@dataclass
class House:
    """Everything a test of the front needs."""

    runtime: Runtime
    database_url: str
    redis_url: str
    folder: Path
    seal_keys: SealingKeys
    seal_keys_path: Path
    operator: str = ""
    dispatcher: str = ""
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _numbers: int = 0
    _jobs: int = 0

    def gateway(
        self, port: int | None = None, environment: Mapping[str, str] | None = None
    ) -> GatewayProcess:
        """Start one and wait until it serves."""
        return self.stack.enter_context(self._gateway(port or free_port(), environment or {}))

    @contextlib.contextmanager
    def _gateway(self, port: int, more: Mapping[str, str]) -> Iterator[GatewayProcess]:
        self._numbers += 1
        folder = self.folder / f"gateway-{self._numbers}"
        folder.mkdir()
        environment = self._environment(folder, port) | dict(more)
        with (folder / "log").open("wb") as log, (folder / "out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "kici_scaler.gateway"],
                env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log,
            )  # fmt: skip
        gateway = GatewayProcess(process, port, folder / "ready", folder / "log", folder / "out")
        try:
            eventually(
                lambda: gateway.ready_file.exists() or process.poll() is not None,
                30,
                why=gateway.log,
            )
            assert process.poll() is None, gateway.log()
            yield gateway
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _environment(self, folder: Path, port: int) -> dict[str, str]:
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("KICI_")},
            "KICI_DATABASE_URL": self.database_url,
            "KICI_REDIS_URL": self.redis_url,
            "KICI_SEAL_KEYS_PATH": str(self.seal_keys_path),
            "KICI_STATE_DIR": str(folder),
            "KICI_PORT": str(port),
            "KICI_READY_FILE": str(folder / "ready"),
        }

    def failed_gateway(self, more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """One that ends by itself, because of its environment."""
        environment = self._environment(self.folder, free_port()) | dict(more)
        return subprocess.run(
            [sys.executable, "-m", "kici_scaler.gateway"],
            env=environment, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip

    def client(self, gateway: GatewayProcess, token: str | None = None) -> httpx.Client:
        """An HTTP client with the operator's key, or another token ('' for none)."""
        shown = self.operator if token is None else token
        headers = {"Authorization": f"Bearer {shown}"} if shown else {}
        return self.stack.enter_context(
            httpx.Client(base_url=gateway.url, headers=headers, timeout=20)
        )

    def body(self, job_id: str, *command: str, **more: Any) -> dict[str, Any]:
        """A scale request for a command."""
        payload = {"command": list(command) or ["true"], **more.pop("payload", {})}
        sealed = seal(self.seal_keys.newest.public, json.dumps(payload).encode())
        return {
            "jobId": job_id,
            "runId": f"run-of-{job_id}",
            "labels": ["linux", "demo"],
            "payload": sealed.as_json(),
            **more,
        }

    def new_job(self) -> str:
        """A job id that no other test uses."""
        self._jobs += 1
        return f"job-{self._jobs}"

    def order(self, gateway: GatewayProcess, *command: str, **more: Any) -> start.StartOrder:
        """A job of a command, requested and with its spawn made, but no agent yet."""
        body = self.body(self.new_job(), *command) | more
        answer = self.client(gateway).post("/v1/requests", json=body)
        assert answer.status_code == 201, answer.text
        assert answer.json()["result"] == "spawning", answer.text
        return next(order for order in self.take() if order.row.job_id == body["jobId"])

    def take(self) -> list[start.StartOrder]:
        """Take what is reserved on the machine, and record it as made."""
        orders, _ = start.take(self.runtime, backend_type="bare-metal", machine_id=MACHINE, most=50)
        for order in orders:
            start.record_created(self.runtime, order, {"pid": "1"}, ())
        return orders

    def agent(
        self, order: start.StartOrder, gateway: GatewayProcess, **more: str | None
    ) -> AgentProcess:
        """The reference agent of a taken spawn, as a process."""
        environment = {
            "KICI_AGENT_ID": order.row.agent_id,
            "KICI_LABELS": ",".join(order.row.agent_labels),
            "KICI_AGENT_TOKEN": order.agent_token,
            **more,
        }
        folder = self.folder / order.row.agent_id
        return self.stack.enter_context(agent_process(gateway.agents_url, folder, environment))

    def flush_redis(self) -> None:
        """Lose everything that Redis holds."""
        with contextlib.closing(redis.Redis.from_url(self.redis_url)) as client:
            client.flushall()

    def scalar(self, statement: str, **values: object) -> Any:
        """One value of the database."""
        with transaction(self.runtime.engine) as connection:
            return connection.execute(text(statement), values).scalar_one_or_none()

    def state(self, agent_id: str) -> SpawnState | None:
        """The state of a spawn; None when it is gone."""
        found = self.scalar("SELECT state FROM spawns WHERE agent_id = :id", id=agent_id)
        return None if found is None else SpawnState(found)

    def job_state(self, job_id: str) -> str | None:
        """The state of a request."""
        found = self.scalar("SELECT state FROM scale_requests WHERE job_id = :id", id=job_id)
        return None if found is None else str(found)

    def unseen(self, agent_id: str) -> bool:
        """Whether the absence clock of an agent runs."""
        return bool(
            self.scalar(
                "SELECT unseen_since IS NOT NULL FROM agents WHERE agent_id = :i", i=agent_id
            )
        )

    def await_state(self, agent_id: str, state: SpawnState, within: float = 15.0) -> None:
        """Wait until a spawn is in a state."""
        eventually(
            lambda: self.state(agent_id) is state, within, why=lambda: str(self.state(agent_id))
        )

    def await_job(self, job_id: str, state: str, within: float = 15.0) -> None:
        """Wait until a request is in a state."""
        eventually(
            lambda: self.job_state(job_id) == state, within, why=lambda: str(self.job_state(job_id))
        )
