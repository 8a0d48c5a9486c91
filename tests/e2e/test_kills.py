"""`kill -9` of any part loses no job, runs none twice, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kici_scaler.embedded.child import State
from tests.e2e.site import LONG, Site, open_site
from tests.support.waiting import eventually

WORKER = "bare-metal"
GATEWAY = "gateway"
JOBS = 4


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Leases end sooner than by default, so that a killed worker's work is soon taken up."""
    with open_site({"lease_seconds": 6.0}) as site:
        yield site


def kill_and_see_it_return(site: Site, name: str) -> None:
    supervisor = site.installation.supervisor
    before = supervisor.starts(name)
    site.installation.kill(name)
    eventually(
        lambda: supervisor.starts(name) > before and supervisor.states()[name] is State.READY,
        LONG,
        why=lambda: f"{name} did not come back:\n{site.installation.log(name)[-2000:]}",
    )


def recording(file: Path, then: str = "") -> str:
    """A script that leaves a line for each time it is run."""
    return f"echo ran >> {file}; {then}"


def test_a_backend_worker_killed_in_mid_spawn(site: Site, tmp_path: Path) -> None:
    files = {f"spawn-{number}": tmp_path / str(number) for number in range(JOBS)}
    for job_id, file in files.items():
        site.submit(job_id, recording(file, "echo done"))
    eventually(lambda: site.spawns_in("spawning"), LONG)
    kill_and_see_it_return(site, WORKER)
    for job_id, file in files.items():
        assert site.result(job_id).succeeded
        assert site.printed(job_id) == ["done"]
        assert file.read_text() == "ran\n"
    site.expect_no_agent_left()


def test_an_agent_killed_in_mid_job(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "runs"
    site.submit("victim", recording(file, "echo begun; sleep 300"))
    agent = site.agent_of("victim")
    assert next(site.scaler.log("victim")).text == "begun"
    pid = site.gateway.get(f"/v1/agents/{agent['agentId']}")["agent"]["facts"]["pid"]
    children = psutil.Process(pid).children(recursive=True)
    os.kill(pid, signal.SIGKILL)

    result = site.result("victim")
    assert result.state == "failed"
    assert result.exit_code is None
    assert "its agent was ended by signal 9" in str(result.error)
    assert file.read_text() == "ran\n"
    site.expect_no_agent_left()
    assert children
    assert not [child for child in children if child.is_running()]


def test_a_gateway_killed_in_mid_job(site: Site, tmp_path: Path) -> None:
    file, may_end = tmp_path / "runs", tmp_path / "may-end"
    wait = f"n=0; until [ -e {may_end} ]; do n=$((n + 1)); echo line $n; sleep 0.1; done"
    site.submit("orphan", recording(file, f"{wait}; echo last"))
    agent = site.agent_of("orphan")
    kill_and_see_it_return(site, GATEWAY)
    back = eventually(
        lambda: [each for each in site.agents()
                 if each["connected"] and each["connectionNumber"] > agent["connectionNumber"]],
        LONG,
        why=lambda: f"the agent did not return: {site.agents()}",
    )  # fmt: skip
    assert [each["agentId"] for each in back] == [agent["agentId"]]
    assert back[0]["state"] == "busy"
    may_end.touch()

    assert site.result("orphan").exit_code == 0
    assert file.read_text() == "ran\n"
    *lines, last = site.printed("orphan")
    numbers = [int(line.removeprefix("line ")) for line in lines]
    # What the killed gateway had in hand is lost; nothing comes twice or out of order.
    assert numbers == sorted(set(numbers))
    assert last == "last"
    site.expect_no_agent_left()


def test_all_workers_killed_at_once_in_mid_job(site: Site, tmp_path: Path) -> None:
    file, may_end = tmp_path / "runs", tmp_path / "may-end"
    site.submit("alone", recording(file, f"until [ -e {may_end} ]; do sleep 0.1; done; exit 5"))
    site.agent_of("alone")
    for name in (WORKER, "control", "beat"):
        kill_and_see_it_return(site, name)
    may_end.touch()
    assert site.result("alone").exit_code == 5
    assert file.read_text() == "ran\n"
    site.expect_no_agent_left()
