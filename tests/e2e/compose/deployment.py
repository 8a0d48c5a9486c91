"""The compose file as an operator runs it: up, scaled, looked at, taken down."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from docker import APIClient

from tests.e2e.compose.stand_ins import AGENT, IMAGES
from tests.support import waiting
from tests.support.source import ROOT

PROJECT: Final = "kici-e2e"
PROFILES: Final = ("container", "bare-metal", "flower", "monitoring")
MINIMAL: Final = frozenset(
    {"postgres", "redis", "sealing-key", "migrate", "gateway", "proxy", "configure",
     "control-worker", "event-worker", "beat"}
)  # fmt: skip
"""What runs without any profile."""
ONCE: Final = frozenset({"migrate", "sealing-key", "configure", "prometheus-key"})
"""Services that end by themselves."""
URL: Final = "http://127.0.0.1:4000"
PATIENCE: Final = 240.0
"""Seconds for anything that should happen; the machine may be a small and busy one."""
SCALERS: Final = f"""
version: 1
globalMaxAgents: 20
scalers:
  - name: boxes
    type: container
    maxAgents: 6
    networkIsolation: false
    labelSets: [{{labels: [linux, box], image: "{AGENT}", imagePullPolicy: Never}}]
  - name: processes
    type: bare-metal
    maxAgents: 4
    labelSets: [{{labels: [linux, process], binaryPath: "builtin:agent"}}]
"""


def say(text: str) -> None:
    """One line about what goes on."""
    print(f"e2e-compose: {text}", flush=True)


def eventually(what: str, found: Callable[[], Any], within: float = PATIENCE) -> Any:
    """The first true answer of a question, which costs something and is asked once a second.

    Raises:
        AssertionError: there was none in time.
    """
    pause = threading.Event()

    def asked() -> Any:
        return found() or (pause.wait(1.0) and None)

    return waiting.eventually(asked, within, why=what)


@dataclass
class Deployment:
    """One start of the file in a Docker of the tests' own."""

    api: APIClient
    socket: str
    folder: Path
    key: str = ""
    profiles: Sequence[str] = PROFILES
    _jobs: int = field(default=0)

    def compose(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `docker-compose` on the file."""
        profiles = [each for name in self.profiles for each in ("--profile", name)]
        done = subprocess.run(
            ["docker-compose", "--project-name", PROJECT, "--project-directory", str(ROOT),
             "--file", str(ROOT / "docker-compose.yml"), "--env-file", str(self.folder / "env"),
             *profiles, *arguments],
            env={**os.environ, "DOCKER_HOST": f"unix://{self.socket}",
                 "COMPOSE_HTTP_TIMEOUT": "600"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(
                f"compose {' '.join(arguments)}: {(done.stdout + done.stderr)[-6000:]}"
            )
        return done

    def prepare(self, *, minimal: bool = False) -> None:
        """Write what an operator writes: passwords, images, scalers.

        Args:
            minimal: without profiles, and with the scalers that the file itself names.
        """
        self.profiles = () if minimal else PROFILES
        (self.folder / "scalers.yaml").write_text(SCALERS)
        values = {
            **IMAGES,
            **{f"{name}_PASSWORD": secrets.token_hex(16)
               for name in ("POSTGRES", "REDIS", "FLOWER", "GRAFANA")},
            **({} if minimal else {"KICI_SCALERS_FILE": str(self.folder / "scalers.yaml")}),
            "DOCKER_SOCKET": self.socket,
            "KICI_CONTAINER_ORCHESTRATOR_URL": "ws://172.17.0.1:4000/v1/agents",
        }  # fmt: skip
        (self.folder / "env").write_text("".join(f"{k}={v}\n" for k, v in values.items()))

    def containers(self, service: str | None = None) -> list[dict[str, Any]]:
        """The project's containers, ended ones too."""
        labels = [f"com.docker.compose.project={PROJECT}", "com.docker.compose.oneoff=False"]
        labels += [f"com.docker.compose.service={service}"] if service else []
        found = self.api.containers(all=True, filters={"label": labels})
        return [self.api.inspect_container(each["Id"]) for each in found]

    def unwell(self) -> dict[str, str]:
        """What is not as it should be, by container."""
        found = {}
        for each in self.containers():
            service = each["Config"]["Labels"]["com.docker.compose.service"]
            state = each["State"]
            health = state.get("Health", {}).get("Status", "none")
            if service in ONCE:
                fine = state["Status"] == "exited" and state["ExitCode"] == 0
            else:
                fine = state["Status"] == "running" and health in ("healthy", "none")
            if not fine:
                found[each["Name"]] = f"{state['Status']} {state['ExitCode']} {health}"
        return found

    def services(self) -> set[str]:
        """The services that have containers."""
        return {each["Config"]["Labels"]["com.docker.compose.service"]
                for each in self.containers()}  # fmt: skip

    def settled(self) -> None:
        """Wait until everything is up and well."""
        eventually("all services are well", lambda: not self.unwell() or None)

    def doctor(self) -> dict[str, dict[str, Any]]:
        """The findings of `kici-scaler doctor` inside, by their names."""
        done = self.compose("exec", "-T", "control-worker", "kici-scaler", "doctor", "--json",
                            check=False)  # fmt: skip
        rows = json.loads(done.stdout)["rows"] if done.stdout.startswith("{") else []
        return {row["name"]: row for row in rows}

    def workers_of(self, queue: str) -> int:
        """How many workers consume a queue."""
        row = self.doctor().get(f"queue:{queue}")
        return int(row["details"]["workers"]) if row else 0

    def cli(self, *arguments: str, within: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """The command line from outside, through the proxy."""
        return subprocess.run(
            [sys.executable, "-m", "kici_scaler.cli.main", *arguments], cwd=ROOT,
            env={**os.environ, "KICI_URL": URL, "KICI_API_KEY": self.key, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within, check=False,
        )  # fmt: skip

    def run_jobs(self, *labels: str, count: int = 1) -> None:
        """Run jobs from request to output, all at once."""
        running = []
        for label in labels:
            for _ in range(count):
                self._jobs += 1
                job = f"job-{self._jobs}"
                running.append((job, self._start(job, label)))
        for job, process in running:
            out, err = process.communicate(timeout=PATIENCE)
            assert (process.returncode, out) == (0, f"hello {job}\n"), (
                f"{job}: {process.returncode} {out!r} {err[-1500:]}"
            )

    def _start(self, job: str, label: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kici_scaler.cli.main", "request", "--quiet", "--job-id", job,
             "--timeout", str(int(PATIENCE)), "--labels", f"linux,{label}", "--",
             "sh", "-c", f"echo hello {job}"],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "KICI_URL": URL, "KICI_API_KEY": self.key,
                            "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def kill(self, service: str) -> str:
        """`kill -9` of a service's first process; the name of the container it was in."""
        each = next(c for c in self.containers(service) if c["State"]["Running"])
        os.kill(each["State"]["Pid"], signal.SIGKILL)
        name: str = each["Name"]
        return name

    def restarts(self, name: str) -> int:
        """How often Docker started it again."""
        return int(self.api.inspect_container(name.lstrip("/"))["RestartCount"])

    def logs(self, lines: int = 15) -> str:
        """The last lines of what is not well."""
        texts = []
        for name, state in self.unwell().items():
            tail = self.api.logs(name.lstrip("/"), tail=lines).decode(errors="replace")
            texts.append(f"--- {name}: {state}\n{tail}")
        return "\n".join(texts)

    def leftovers(self) -> Sequence[str]:
        """What the file left in Docker."""
        label = {"label": f"com.docker.compose.project={PROJECT}"}
        found = [each["Id"] for each in self.api.containers(all=True, filters=label)]
        found += [each["Name"] for each in self.api.networks(filters=label)]
        found += [each["Name"] for each in self.api.volumes(filters=label)["Volumes"] or ()]
        return found
