"""Agents in containers, by the runtime of a machine that is reached by SSH."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kici_scaler.domain.scalers import Amount, LabelSet
from tests.e2e.container.base_tree import write_tree
from tests.e2e.container.engines import DockerEngine
from tests.support.source import ROOT
from tests.support.sshd import Sshd
from tests.support.waiting import eventually
from workers.bare_metal import BareMetalBackend
from workers.bare_metal.backend import on_link
from workers.bare_metal.ssh.host import SshHost
from workers.bare_metal.ssh.link import Link
from workers.contract import BackendContext, ComputeRef, Deadline, ExitKind, SpawnOrder
from workers.errors import Permanent
from workers.machine import local_machine

IMAGE = "kici-e2e-base"
AGENT = """\
import os, pathlib, time
token = pathlib.Path(os.environ["KICI_AGENT_TOKEN_FILE"])
assert token.read_text() == "the-secret"
token.unlink()
print("hello", os.environ["KICI_AGENT_ID"], os.environ["GREETING"], os.getcwd(), flush=True)
state = pathlib.Path(os.environ["KICI_AGENT_STATE_DIR"])
while not (state / "door").exists():
    time.sleep(0.1)
word = (state / "door").read_text()
if word == "eat":
    hunger = bytearray(900 << 20)
print("last words", flush=True)
raise SystemExit(3)
"""


def soon() -> Deadline:
    return Deadline.after(120)


class Yard(Sshd):
    """A machine with a Docker of its own."""

    def __init__(self, folder: Path, engine: DockerEngine) -> None:
        self.engine = engine
        super().__init__(folder)

    def _environment(self) -> tuple[str, ...]:
        return (*super()._environment(), f"DOCKER_HOST={self.engine.url}")

    def docker(self, *arguments: str) -> str:
        done = subprocess.run(
            ["docker", "--host", self.engine.url, *arguments], capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        return done.stdout


@pytest.fixture(scope="module")
def engine(_bridge: None) -> Iterator[DockerEngine]:
    """A Docker with one image."""
    if shutil.which("dockerd") is None:
        pytest.skip("no dockerd here (Debian: docker.io)")
    tree = ROOT / "build/e2e/base.tar"
    tree.parent.mkdir(parents=True, exist_ok=True)
    write_tree(tree)
    made = DockerEngine()
    made.start()
    subprocess.run(["docker", "--host", made.url, "import", str(tree), IMAGE], check=True)
    yield made
    made.close()


@pytest.fixture
def yard(tmp_path: Path, engine: DockerEngine) -> Iterator[Yard]:
    made = Yard(tmp_path / "yard", engine)
    made.start()
    yield made
    made.stop()


class Ground:
    """The backend on it, with a program of the test's own for the agent."""

    def __init__(self, yard: Yard, folder: Path) -> None:
        self.yard = yard
        self.installation_id = f"test-{secrets.token_hex(4)}"
        self.link = Link(yard.target())
        context = BackendContext(self.installation_id, local_machine("yard"), folder)
        self.backend: BareMetalBackend = on_link(context, self.link)
        self._token = 0

    def order(self, options: Mapping[str, object], **more: Any) -> SpawnOrder:
        self._token += 1
        label_set = LabelSet(
            0, ("linux",), options={"image": IMAGE, "env": {"GREETING": "moin"}, **options}
        )
        given: dict[str, Any] = {
            "installation_id": self.installation_id,
            "scaler": "pool",
            "agent_id": f"scaler-bare-metal-{secrets.token_hex(6)}",
            "lease_token": self._token,
            "label_set": label_set,
            "gateway_url": "ws://127.0.0.1:1/v1/agents",
            "agent_token": "the-secret",
            "limits": Amount(500, 128 << 20),
            "options": {"networkIsolation": False},
            **more,
        }
        return SpawnOrder(**given)

    def ref(self, agent_id: str) -> ComputeRef:
        self._token += 1
        return ComputeRef(self.installation_id, "pool", agent_id, self._token)

    def containers(self) -> list[str]:
        label = f"label=kici-installation-id={self.installation_id}"
        return self.yard.docker("ps", "-a", "--filter", label, "--format", "{{.Names}}").split()

    def door(self, agent_id: str, word: str) -> None:
        (self.yard.state / "bare-metal/agents" / agent_id / "state/door").write_text(word)

    def prints(self, agent_id: str, start: str) -> str:
        def line() -> str:
            lines = self.backend.logs(self.ref(agent_id), 50, soon())
            return next((each for each in lines if each.startswith(start)), "")

        return eventually(line, 60, why=lambda: str(self.yard.docker("ps", "-a")))

    def cause(self, agent_id: str) -> Any:
        return eventually(lambda: self.backend.exit_cause(self.ref(agent_id), soon()), 60)


@pytest.fixture
def ground(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    program = tmp_path / "agent.py"
    program.write_text(AGENT)
    monkeypatch.setattr(SshHost, "agent_file", lambda *_: str(program))
    made = Ground(yard, tmp_path)
    yield made
    made.link.close()


def test_an_agent_runs_in_a_container_and_shows_no_secret(ground: Ground) -> None:
    order = ground.order({})
    ground.backend.spawn(order, soon())

    said = ground.prints(order.agent_id, "hello")
    shown = ground.yard.docker("inspect", order.agent_id)

    assert said == f"hello {order.agent_id} moin /run/kici-agent/work"
    assert "the-secret" not in shown
    limits = json.loads(shown)[0]["HostConfig"]
    assert (limits["Memory"], limits["NanoCpus"], limits["PidsLimit"]) == (
        128 << 20,
        500_000_000,
        4096,
    )
    ground.door(order.agent_id, "go")
    cause = ground.cause(order.agent_id)
    assert (cause.kind, cause.exit_code) == (ExitKind.EXITED, 3)
    assert cause.log_tail[-1] == "last words"
    ground.backend.destroy(ground.ref(order.agent_id), soon())
    assert ground.containers() == []


def test_a_container_is_removed_although_its_client_was_killed(ground: Ground) -> None:
    order = ground.order({})
    spawned = ground.backend.spawn(order, soon())
    ground.prints(order.agent_id, "hello")

    subprocess.run(["kill", "-9", spawned.ref["pid"]], check=True)
    eventually(lambda: not ground.backend.inventory(ground.installation_id, soon())[0].running, 30)
    assert ground.containers() == [order.agent_id]
    ground.backend.destroy(ground.ref(order.agent_id), soon())

    assert ground.containers() == []
    assert ground.backend.inventory(ground.installation_id, soon()) == ()


def test_one_that_passes_its_memory_limit_is_said_to_have(ground: Ground) -> None:
    order = ground.order({})
    ground.backend.spawn(order, soon())
    ground.prints(order.agent_id, "hello")

    ground.door(order.agent_id, "eat")

    assert ground.cause(order.agent_id).kind is ExitKind.OUT_OF_MEMORY
    ground.backend.destroy(ground.ref(order.agent_id), soon())
    assert ground.containers() == []


def test_an_image_that_cannot_be_had_fails_for_good_and_leaves_nothing(ground: Ground) -> None:
    order = ground.order({}, job_image="127.0.0.1:1/no/such:image")

    with pytest.raises(Permanent, match="cannot be pulled") as failure:
        ground.backend.spawn(order, soon())

    assert failure.value.job_caused
    assert ground.containers() == []
    assert ground.backend.inventory(ground.installation_id, soon()) == ()


def test_isolation_that_nobody_can_make_is_not_pretended(ground: Ground) -> None:
    order = replace(ground.order({}), options={})

    with pytest.raises(Permanent, match="isolated"):
        ground.backend.spawn(order, soon())
