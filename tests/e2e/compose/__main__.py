"""Starts the compose file, runs jobs, scales, kills service after service, takes it down.

`python -m tests.e2e.compose WORKSHOP`, inside namespaces of its own; see
`scripts/e2e_compose.sh`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx

from tests.e2e.compose.deployment import MINIMAL, URL, Deployment, eventually, say
from tests.e2e.compose.stand_ins import make_images
from tests.e2e.container.engines import DockerEngine

KILLED: Final = (
    "gateway", "proxy", "control-worker", "container-worker", "bare-metal-worker", "event-worker",
    "beat", "flower", "prometheus", "grafana", "redis", "postgres",
)  # fmt: skip
"""Every service that stays, those that the others need last."""


def main(workshop: Path) -> None:
    """The whole run; any doubt ends it."""
    _weigh_containers()
    engine = DockerEngine()
    folder = Path(tempfile.mkdtemp(prefix="kici-compose-"))
    engine.start()
    try:
        api = engine.client(600)
        say("making stand-ins for the images")
        make_images(api, workshop)
        deployment = Deployment(api, str(engine.socket), folder)
        for minimal, course in ((False, _run), (True, _minimal)):
            deployment.prepare(minimal=minimal)
            try:
                course(deployment)
            except BaseException:
                say(deployment.logs())
                raise
            finally:
                _take_down(deployment)
        api.close()
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)
    assert not engine.folder.exists()
    say("everything held")


def _weigh_containers() -> None:
    """All containers together are one group, which counts as much as any one process outside.

    On a machine that does other things too they would get next to nothing; so it weighs as
    much as the processes in it do elsewhere.
    """
    for controller, weight in (("cpu/kici-e2e/cpu.shares", 8_192), ("kici-e2e/cpu.weight", 800)):
        knob = Path("/sys/fs/cgroup") / controller
        if not knob.parent.parent.joinpath("cgroup.procs").exists():
            continue
        knob.parent.mkdir(exist_ok=True)
        if knob.exists():
            knob.write_text(str(weight))


def _run(deployment: Deployment) -> None:
    begun = time.monotonic()
    say("building the image, starting every service")
    deployment.compose("build", "migrate")
    say(f"built after {time.monotonic() - begun:.0f} s")
    deployment.compose("up", "--detach", "--no-build")
    deployment.settled()
    say(f"all services are well after {time.monotonic() - begun:.0f} s")
    _make_key(deployment)
    _jobs(deployment)
    _looks(deployment)
    _scaled(deployment)
    for service in KILLED:
        _killed(deployment, service)
    _stopped_in_order(deployment)


def _minimal(deployment: Deployment) -> None:
    """Without profiles: what is needed, and nothing else."""
    deployment.compose("up", "--detach", "--no-build")
    deployment.settled()
    assert deployment.services() == MINIMAL, deployment.services()
    _make_key(deployment)
    _expect_health(deployment)
    assert deployment.workers_of("event") == 1
    say("the minimal set is well, and nothing else runs")


def _make_key(deployment: Deployment) -> None:
    made = deployment.compose("run", "--rm", "-T", "--no-deps", "gateway",
                              "keys", "create", "--scope", "operator", "--name", "e2e")  # fmt: skip
    deployment.key = made.stdout.strip().splitlines()[-1]


def _expect_health(deployment: Deployment) -> None:
    bad = {name: row["message"] for name, row in deployment.doctor().items()
           if row["health"] == "fail"}  # fmt: skip
    assert not bad, bad
    gateways = httpx.get(
        f"{URL}/v1/status", headers={"Authorization": f"Bearer {deployment.key}"}, timeout=30
    ).json()["gateways"]
    assert sum(each["isFresh"] for each in gateways) == 2, gateways


def _jobs(deployment: Deployment) -> None:
    deployment.run_jobs("process", "box", count=2)
    say("jobs ran in containers and as processes")


def _looks(deployment: Deployment) -> None:
    """What people look at is there, and closed where it should be."""
    _expect_health(deployment)
    assert httpx.get(f"{URL}/ui/login", timeout=30).status_code == 200
    assert httpx.get("http://127.0.0.1:5555/api/workers", timeout=30).status_code == 401

    def targets() -> bool:
        answer = httpx.get("http://127.0.0.1:9090/api/v1/targets", timeout=30).json()
        states = [each["health"] for each in answer["data"]["activeTargets"]]
        return states == ["up", "up"]

    eventually("Prometheus gets figures from both gateways", targets)
    rules = httpx.get("http://127.0.0.1:9090/api/v1/rules", timeout=30).json()
    assert sum(len(group["rules"]) for group in rules["data"]["groups"]) > 20
    say("doctor, status page, Flower's lock, Prometheus' targets and rules are as they should be")


def _scaled(deployment: Deployment) -> None:
    deployment.compose("up", "--detach", "--no-build", "--no-recreate",
                       "--scale", "container-worker=3", "container-worker")  # fmt: skip
    queue = "machine.docker-host.container"
    eventually("three workers consume", lambda: deployment.workers_of(queue) == 3)
    deployment.run_jobs("box", count=4)
    say("container-worker=3 gave three consumers, and jobs ran")


def _killed(deployment: Deployment, service: str) -> None:
    name = deployment.containers(service)[0]["Name"]
    before = deployment.restarts(deployment.kill(service))
    deployment.run_jobs("process")
    eventually(f"{name} is started again", lambda: any(
        each["RestartCount"] > 0 and each["State"]["Running"]
        for each in deployment.containers(service)))  # fmt: skip
    deployment.settled()
    deployment.run_jobs("process", "box")
    say(f"{service} was killed (restarts before: {before}): jobs ran, it is back and well")


def _stopped_in_order(deployment: Deployment) -> None:
    """A worker that is stopped ends within its grace, by itself."""
    begun = time.monotonic()
    deployment.compose("stop", "control-worker", "event-worker")
    took = time.monotonic() - begun
    codes = {each["State"]["ExitCode"] for name in ("control-worker", "event-worker")
             for each in deployment.containers(name)}  # fmt: skip
    assert 137 not in codes, f"a worker was killed after {took:.0f} s: {codes}"
    say(f"workers stopped by themselves within {took:.0f} s")


def _take_down(deployment: Deployment) -> None:
    say("taking it down")
    deployment.compose("down", "--volumes", "--remove-orphans", "--timeout", "30", check=False)
    left = deployment.leftovers()
    assert not left, f"left behind: {left}"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
