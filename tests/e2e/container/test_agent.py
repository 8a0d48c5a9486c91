"""The reference agent in containers: in its own image, and in images that jobs bring along."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.container.gateway import Authority, gateway
from tests.e2e.container.images import AGENT, BASE, NO_PYTHON, build, image_id
from tests.e2e.container.workshop import Workshop, soon
from tests.support.waiting import eventually
from workers.container import runtime_volume
from workers.contract import ExitKind, SpawnOrder
from workers.errors import BackendError, Permanent

_LOOK = (
    "id -u; echo image says $IMAGE_SAYS; echo own image $KICI_JOB_IMAGE_AGENT;"
    "touch /opt/kici/agent.pyz 2>/dev/null || echo read-only;"
    "ls -A /run/kici-agent/token 2>/dev/null || echo no token;"
    "env | grep -E '^(PYTHON|LD_|SSL_|KICI_AGENT_TOKEN)' || echo nothing leaks"
)


def _order(workshop: Workshop, url: str, **more: object) -> SpawnOrder:
    return workshop.order(gateway_url=url, image=AGENT, **more)  # type: ignore[arg-type]  # passed on


def test_the_agents_own_image_runs_as_it_says(workshop: Workshop) -> None:
    backend = workshop.open()
    with gateway() as server:
        order = _order(workshop, server.url)
        backend.spawn(order, soon())
        line = server.accept()
        greeting = line.welcome()
        line.start("sh", "-c", "id -u; ls -A /run/kici-agent/token || echo no token")
        result = line.finish()

    assert greeting.agent_id == order.agent_id
    assert greeting.token == order.agent_token
    assert result.exit_code == 0
    assert line.output() == ["1000", "no token"]
    cause = eventually(lambda: backend.exit_cause(workshop.ref(order), soon()), 30)
    assert cause is not None
    assert (cause.kind, cause.exit_code) == (ExitKind.EXITED, 0)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (NO_PYTHON, ["1234", "image says hello"]),
        (BASE, ["0", "image says"]),
    ],
)
def test_a_jobs_own_image_runs_the_job_as_it_says(
    workshop: Workshop, authority: Authority, image: str, expected: list[str]
) -> None:
    with gateway(authority.context()) as server:
        workshop.open().spawn(_order(workshop, server.url, job_image=image), soon())
        line = server.accept()
        line.welcome()
        line.start("sh", "-c", _LOOK)
        result = line.finish()

    assert result.exit_code == 0
    assert line.output() == [*expected, "own image 1", "read-only", "no token", "nothing leaks"]


def test_spawns_at_once_pack_the_agent_once(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = workshop.engine.client(timeout=120)
    fresh = f"localhost/kici-e2e/agent-of-{workshop.installation_id}:1"
    build(api, fresh, f"FROM {AGENT}\nENV MARK={workshop.installation_id}\n", {})
    own = image_id(api, fresh)
    orders = [
        replace(
            workshop.order(image=fresh, job_image=NO_PYTHON),
            gateway_url="ws://127.0.0.1:9/v1/agents",
        )
        for _ in range(4)
    ]
    backend, counted = workshop.open(), threading.Lock()
    fillings: list[str] = []
    fill = runtime_volume._fill

    def count(*arguments: Any) -> None:
        with counted:
            fillings.append("one")
        fill(*arguments)

    monkeypatch.setattr(runtime_volume, "_fill", count)
    with ThreadPoolExecutor(4) as pool:
        spawned = list(pool.map(lambda order: backend.spawn(order, soon()), orders))

    volume = runtime_volume.volume_name(own)
    mounts = {
        mount["Name"]
        for each in spawned
        for mount in api.inspect_container(each.name)["Mounts"]
        if mount["Type"] == "volume"
    }
    api.close()
    assert mounts == {volume}
    assert fillings == ["one"]


def test_a_filling_that_was_left_behind_is_done_again(workshop: Workshop) -> None:
    api = workshop.engine.client(timeout=120)
    fresh = f"localhost/kici-e2e/agent-of-{workshop.installation_id}:1"
    build(api, fresh, f"FROM {AGENT}\nENV MARK={workshop.installation_id}\n", {})
    name = runtime_volume.volume_name(image_id(api, fresh))
    api.create_container(fresh, ["true"], name=f"{name}-fill")

    order = workshop.order(image=fresh, job_image=NO_PYTHON)
    workshop.open().spawn(order, soon())

    names = [name for each in api.containers(all=True) for name in each["Names"]]
    api.close()
    assert not [each for each in names if each.endswith("-fill")]


def test_an_agents_image_without_python_is_named_as_the_reason(workshop: Workshop) -> None:
    order = workshop.order(image=NO_PYTHON, job_image=BASE)

    with pytest.raises(BackendError) as refusal:
        workshop.open().spawn(order, soon())

    assert "python3" in str(refusal.value) + refusal.value.hint
    assert workshop.open().inventory(workshop.installation_id, soon()) == ()


def test_a_result_that_was_not_delivered_is_found_in_the_ended_container(
    workshop: Workshop,
) -> None:
    backend = workshop.open()
    with gateway() as server:
        order = _order(workshop, server.url, env={"KICI_AGENT_RECONNECT_BASE": "60000"})
        spawned = backend.spawn(order, soon())
        line = server.accept()
        line.welcome()
        line.start("sh", "-c", "sleep 1; exit 7")
        line.cut()
    api = workshop.engine.client()

    def has_result() -> bool:
        asked = api.exec_create(spawned.name, ["ls", "/run/kici-agent/state/result.json"])
        api.exec_start(asked["Id"])
        return bool(api.exec_inspect(asked["Id"])["ExitCode"] == 0)

    eventually(has_result, 30)
    api.kill(spawned.name, "SIGKILL")
    api.close()

    cause = eventually(lambda: backend.exit_cause(workshop.ref(order), soon()), 30)

    assert cause is not None
    assert cause.spool is not None
    assert json.loads(cause.spool)["result"]["exitCode"] == 7


def test_an_image_that_cannot_run_here_is_the_jobs_own_fault(workshop: Workshop) -> None:
    order = workshop.order(image=AGENT, job_image="localhost/kici-e2e/never-made:1")

    with pytest.raises(BackendError) as refusal:
        workshop.open().spawn(order, soon())

    assert refusal.value.job_caused
    assert not isinstance(refusal.value, Permanent) or "never-made" in str(refusal.value)
