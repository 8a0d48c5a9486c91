"""Agents in containers, by the machine's own runtime and its command line.

The agent's process is then the runtime's client, which runs for as long as the container does and
passes signals on. The container's name is the agent's, and stands in the record before anything
is made, so whatever is left of it can be removed. Its token is a file that only the agent's user
can read, and its environment is passed by name: neither is in an argument list, nor the token in
what the runtime shows of the container.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from . import files
from .cgroups import Limits
from .refusal import Refused

RUNTIMES = ("docker", "podman")
"""In the order in which they are taken."""
INSIDE = "/run/kici-agent"
"""Where the agent finds what is its own."""
PROGRAM = "/run/kici-agent.pyz"

MOST_PROCESSES = 4096

_OWN = {
    "KICI_AGENT_STATE_DIR": f"{INSIDE}/state",
    "KICI_AGENT_TOKEN_FILE": f"{INSIDE}/state/token",
    "HOME": f"{INSIDE}/work",
}
"""What the agent is told in place of what its client is."""
CLIENT = ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "XDG_RUNTIME_DIR")
"""Variables by which a client finds its runtime."""
_PULLS = {"Always": "always", "IfNotPresent": "missing", "Never": "never"}
_REMOVE_SECONDS = 30.0
_LOOK_SECONDS = 10.0


class Box:
    """What a container is made of; credentials stay in memory."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.image = str(content["image"])
        self.agent = str(content["agent"])
        self.pull = _PULLS.get(str(content.get("pull")), "missing")
        self.is_jobs = bool(content.get("is_jobs"))
        self.volumes = [str(each) for each in content.get("volumes") or ()]
        self.registry: dict[str, Any] | None = content.get("registry")
        self.runtime = _runtime(content.get("runtime"))

    def command(
        self, labels: dict[str, str], passed: list[str], folder: Path, limits: Limits
    ) -> list[str]:
        """The client's command line.

        Args:
            passed: variables of the client that the agent gets too, by their names alone.
            folder: of the agent, with its `state` and `work`.
        """
        line = [self.runtime, "run", "--name", labels["kici-agent-id"], "--init"]
        line += ["--pull", "never", "--user", f"{os.getuid()}:{os.getgid()}"]
        if os.getuid() and Path(self.runtime).name == "podman":
            line.append("--userns=keep-id")
        for key, value in labels.items():
            line += ["--label", f"{key}={value}"]
        for key in passed:
            line += ["--env", key]
        for key, value in _OWN.items():
            line += ["--env", f"{key}={value}"]
        for each in ("state", "work"):
            line += ["--volume", f"{folder / each}:{INSIDE}/{each}"]
        for volume in (f"{self.agent}:{PROGRAM}:ro", *self.volumes):
            line += ["--volume", volume]
        line += [*_limiting(limits), "--workdir", f"{INSIDE}/work", "--entrypoint", "python3"]
        return [*line, self.image, PROGRAM]

    def fetch(self, folder: Path, give_up_at: float) -> None:
        """Have the image there. A job's own is pulled with the job's credentials, or with none.

        Raises:
            Refused: `permanent`, when it cannot be had; `unknown`, when that took too long.
        """
        if self.pull == "never" or (self.pull == "missing" and self._has_image()):
            return
        environment = dict(os.environ)
        if self.is_jobs or self.registry:
            environment.update(self._credentials(folder))
        try:
            done = _run([self.runtime, "pull", self.image], give_up_at, environment)
        finally:
            files.remove_tree(folder)
        if done is None:
            raise Refused("unknown", f"pulling {self.image} took too long")
        if done.returncode:
            said = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            raise Refused(
                "permanent", f"{self.image} cannot be pulled: {said}", job_caused=self.is_jobs
            )

    def _has_image(self) -> bool:
        done = _run(
            [self.runtime, "image", "inspect", self.image], time.monotonic() + _LOOK_SECONDS
        )
        return done is not None and done.returncode == 0

    def _credentials(self, folder: Path) -> dict[str, str]:
        """Variables that have the client read these credentials and no others."""
        files.make_private(folder)
        auths = {}
        if self.registry:
            word = f"{self.registry['username']}:{self.registry['password']}".encode()
            auth = {"auth": base64.b64encode(word).decode()}
            auths = dict.fromkeys(self.registry["servers"], auth)
        files.write_secret(folder / "config.json", json.dumps({"auths": auths}))
        return {"DOCKER_CONFIG": str(folder), "REGISTRY_AUTH_FILE": str(folder / "config.json")}


def _limiting(limits: Limits) -> list[str]:
    options = ["--pids-limit", str(limits.processes or MOST_PROCESSES)]
    if limits.memory_bytes:
        memory = str(limits.memory_bytes)
        options += ["--memory", memory, "--memory-swap", memory]
    if limits.cpu_millis:
        options += ["--cpus", f"{limits.cpu_millis / 1000:.3f}"]
    return options


def remove(container: dict[str, Any] | None) -> None:
    """Have nothing left of a container; it may be gone, or never have been there.

    Raises:
        Refused: `unknown`, when the runtime cannot be asked or does not do it.
    """
    if not container:
        return
    runtime, name = str(container["runtime"]), str(container["name"])
    give_up_at = time.monotonic() + _REMOVE_SECONDS
    done = _run([runtime, "rm", "--force", "--volumes", name], give_up_at)
    if done is not None and done.returncode == 0:
        return
    seen = _run([runtime, "container", "inspect", name], give_up_at)
    said = b"" if seen is None else seen.stderr.lower()
    if seen is None or seen.returncode == 0 or b"no such" not in said:
        raise Refused("unknown", f"{runtime} did not remove the container {name}")


def was_out_of_memory(container: dict[str, Any]) -> bool:
    """Whether the runtime says that the container passed its memory limit."""
    asked = [
        str(container["runtime"]),
        "container",
        "inspect",
        "--format",
        "{{.State.OOMKilled}}",
        str(container["name"]),
    ]
    done = _run(asked, time.monotonic() + _LOOK_SECONDS)
    return done is not None and done.stdout.strip() == b"true"


def usable() -> str | None:
    """The runtime that this user can use, or None."""
    for each in RUNTIMES:
        done = _run([each, "ps", "--quiet"], time.monotonic() + _LOOK_SECONDS)
        if done is not None and done.returncode == 0:
            return each
    return None


def _runtime(wanted: Any) -> str:
    name = wanted if wanted in RUNTIMES else usable()
    # Loading it takes longer than most commands do.
    import shutil

    found = shutil.which(str(name)) if name else None
    if found is None:
        raise Refused("permanent", "this machine has no container runtime that its user may use")
    return found


def _run(
    command: list[str], give_up_at: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes] | None:
    """None when it is not there or does not end in time."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(0.1, give_up_at - time.monotonic()),
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
