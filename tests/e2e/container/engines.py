"""Container runtimes of the tests' own: each with its own data, socket and configuration."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from docker import APIClient
from docker.errors import DockerException
from requests.exceptions import RequestException

from tests.e2e.container.registry import LOCKED, OPEN
from tests.support.waiting import eventually
from workers.container.networks import NAME

_STARTS_WITHIN = 60.0
_CGROUP = "/kici-e2e"

_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[network]
network_config_dir = "{folder}/networks"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""


class TestEngine(ABC):
    """A runtime that a test starts, stops and kills."""

    __test__ = False
    runtime: str

    def __init__(self, socket: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"kici-{self.runtime}-"))
        self.socket = socket or self.folder / f"{self.runtime}.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"unix://{self.socket}"

    @property
    def options(self) -> dict[str, object]:
        """A scaler's options for this runtime."""
        return {"socketPath": str(self.socket)}

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The program to run."""

    def environment(self) -> Mapping[str, str]:
        """What the program is told besides its arguments."""
        return {}

    def client(self, timeout: int = 60) -> APIClient:
        """A client that asks the runtime itself, past the backend."""
        return APIClient(self.url, version="auto", timeout=timeout)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                env={**os.environ, **self.environment()},
                # Podman's monitors leave notes (`oom`) where they were started.
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started = self._process
        eventually(
            lambda: self.answers() or started.poll() is not None, _STARTS_WITHIN, why=self.log
        )
        assert started.poll() is None, f"it ended at once: {self.log()}"

    def answers(self) -> bool:
        """Whether it answers."""
        try:
            self.client(5).close()
        except (DockerException, RequestException, OSError):
            return False
        return True

    def log(self) -> str:
        """The end of what it wrote."""
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-15:])

    def stop(self) -> None:
        """Stop it as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """`kill -9` of its process; its containers' own keepers go on."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Let it hang: connections are taken and never answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Remove its containers, stop it, remove its folder."""
        if self._process is not None:
            self.thaw()
            if self.answers():
                api = self.client()
                for each in api.containers(all=True):
                    api.remove_container(each["Id"], force=True, v=True)
                for each in api.networks(names=[NAME]):
                    api.remove_network(each["Id"])
                api.close()
            self.stop()
        self.unmount()
        shutil.rmtree(self.folder, ignore_errors=True)

    def unmount(self) -> None:
        """Release what it left mounted."""
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for each in sorted((m for m in mounts if m.startswith(str(self.folder))), reverse=True):
            subprocess.run(["umount", "--lazy", each], check=False)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._signal(number)
        self._process.wait(30)
        self._process = None
        for each in self.folder.glob("*.pid"):
            each.unlink()


class DockerEngine(TestEngine):
    """Docker; with `keeps_running` its containers survive a restart of it (live restore)."""

    runtime = "docker"

    def __init__(self, socket: Path | None = None, *, keeps_running: bool = False) -> None:
        super().__init__(socket)
        self._keeps_running = keeps_running

    def command(self) -> Sequence[str]:
        more = ["--live-restore"] if self._keeps_running else []
        return [
            "dockerd",
            f"--data-root={self.folder}/data",
            f"--exec-root={self.folder}/exec",
            f"--pidfile={self.folder}/docker.pid",
            f"--host={self.url}",
            f"--cgroup-parent={_CGROUP}",
            "--log-level=warn",
            *more,
        ]


class PodmanEngine(TestEngine):
    """Podman's service, rootful."""

    runtime = "podman"

    def command(self) -> Sequence[str]:
        (self.folder / "networks").mkdir(exist_ok=True)
        (self.folder / "containers.conf").write_text(_CONTAINERS_CONF.format(folder=self.folder))
        open_ones = (
            f'[[registry]]\nlocation = "{each}"\ninsecure = true\n' for each in (OPEN, LOCKED)
        )
        (self.folder / "registries.conf").write_text("".join(open_ones))
        return [
            "podman",
            f"--root={self.folder}/root",
            f"--runroot={self.folder}/run",
            f"--tmpdir={self.folder}/tmp",
            "system",
            "service",
            "--time=0",
            self.url,
        ]

    def environment(self) -> Mapping[str, str]:
        return {
            "CONTAINERS_CONF": f"{self.folder}/containers.conf",
            "CONTAINERS_REGISTRIES_CONF": f"{self.folder}/registries.conf",
        }
