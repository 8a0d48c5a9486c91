"""A warm pool on a whole installation: full at once, used, refilled, renewed and given up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kici_scaler.client import JobRequest, Payload
from kici_scaler.embedded.folder import make_temporary_home
from tests.e2e.site import LABELS, LONG, Site, open_site
from tests.support.waiting import eventually

SCALERS = """
version: 1
globalMaxAgents: 6
scalers:
  - name: local
    type: bare-metal
    maxAgents: 6
{pool}
    labelSets:
      - labels: [linux, demo]
        binaryPath: builtin:agent
        resources: {{ cpus: 1, memory: 256m }}
{more}
"""
POOL = "    warmPool: { enabled: true, size: 2 }"
TWO = 2


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where the scaler file lies."""
    home = make_temporary_home("kici-e2e-warm-")
    yield home
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Site]:
    """An installation that keeps two agents ready."""
    with open_site(scaler_file=_file(folder)) as site:
        yield site


def _file(folder: Path, pool: str = POOL, more: str = "") -> Path:
    path = folder / "scalers.yaml"
    path.write_text(SCALERS.format(pool=pool, more=more))
    return path


def _pool(site: Site) -> Mapping[str, Any]:
    (pool,) = site.gateway.get("/v1/warm")["pools"]
    found: Mapping[str, Any] = pool
    return found


def _ready(site: Site) -> set[str]:
    return {
        each["agentId"]
        for each in site.agents()
        if each["state"] == "idle" and each["jobId"] is None and each["connected"]
    }


def _when_full(site: Site) -> set[str]:
    """The ready agents, once there are as many as there shall be."""
    return (
        eventually(
            lambda: ready if len(ready := _ready(site)) == TWO else None,
            LONG,
            why=lambda: f"{_pool(site)}; {site.agents()}",
        )
        or set()
    )


def _request(site: Site, job_id: str, script: str, **more: Any) -> str | None:
    """Ask for an agent; which one it is, when it is ready."""
    payload = Payload(("sh", "-c", script))
    asked = JobRequest(job_id=job_id, run_id="e2e", labels=LABELS, payload=payload, **more)
    answer = site.scaler.request(asked)
    return answer.agent_id if answer.result == "ready" else None


def test_the_pool_is_full_soon_after_the_start_and_stays_as_it_is(site: Site) -> None:
    ready = _when_full(site)
    assert {each["warm"] for each in site.agents()} == {True}
    shown = json.loads(site.ask("warm", "status", "--json").stdout)["pools"][0]
    assert (shown["labelSet"], shown["target"], shown["ready"]) == ("demo,linux", 2, 2)
    assert _ready(site) == ready
    assert "demo,linux" in site.ask("warm", "status").stdout


def test_a_matching_job_runs_on_a_ready_agent_and_the_pool_is_full_again(site: Site) -> None:
    ready = _when_full(site)
    for agent in ready:
        assert site.gateway.get(f"/v1/agents/{agent}/prespawned")["prespawned"]
        answer = site.gateway.get(f"/v1/agents/{agent}/can-serve", {"labels": "linux,demo"})
        assert answer == {"agentId": agent, "serves": True, "obstacle": None}

    given = _request(site, "warm-1", "echo done")

    assert given in ready
    assert site.result("warm-1").succeeded
    assert not site.gateway.get(f"/v1/agents/{given}/prespawned")["prespawned"]
    assert given not in _when_full(site)
    pool = _pool(site)
    assert (pool["hits"], pool["coldStartsAvoided"], pool["spawned"]) == (1, 1, 3)


def test_a_job_of_another_shape_gets_an_agent_of_its_own(site: Site) -> None:
    ready = _when_full(site)
    one, *_ = ready
    asked = {"labels": "linux,demo", "cpus": "2"}
    answer = site.gateway.get(f"/v1/agents/{one}/can-serve", asked)
    assert (answer["serves"], answer["obstacle"]) == (False, "shape")

    assert _request(site, "cold-1", "echo cold", resources={"cpus": 2}) is None

    assert site.result("cold-1").succeeded
    assert _ready(site) == ready
    assert _pool(site)["misses"] == {"shape": 1, "image": 0, "noneReady": 0}


def test_agents_of_a_changed_label_set_make_way_for_new_ones(site: Site, folder: Path) -> None:
    old = _when_full(site)
    changed = _file(folder, more="        env: { GREETING: hello }")
    assert site.ask("reload", str(changed)).returncode == 0
    eventually(
        lambda: _pool(site)["outdated"] == 0 and not _ready(site) & old and _when_full(site),
        LONG,
        why=lambda: str(_pool(site)),
    )
    assert _request(site, "warm-2", "echo $GREETING") is not None
    assert site.result("warm-2").succeeded
    assert site.printed("warm-2") == ["hello"]


def test_a_pool_that_leaves_the_file_takes_its_agents_with_it(site: Site, folder: Path) -> None:
    _when_full(site)
    assert _request(site, "busy", "sleep 2; echo done") is not None
    assert site.ask("reload", str(_file(folder, pool=""))).returncode == 0
    assert site.result("busy").succeeded
    site.expect_no_agent_left()
    assert site.gateway.get("/v1/warm")["pools"] == []
