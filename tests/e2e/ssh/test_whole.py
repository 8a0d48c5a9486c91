"""The whole system, every process real, with a machine reached by SSH: jobs run there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kici_scaler.embedded.child import State
from tests.e2e.site import LONG, Site, open_site
from tests.support.fleets import scaler
from tests.support.sshd import Sshd
from tests.support.waiting import eventually

QUICK_SECONDS = 12.0
"""Sooner than rows are looked at without a hint, so the hint came by the machine's own queue."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A machine."""
    made = Sshd(tmp_path_factory.mktemp("machine")).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def site(machine: Sshd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An installation whose one scaler has that machine."""
    path = tmp_path_factory.mktemp("scalers") / "scalers.yaml"
    label_sets = [{"labels": ["linux", "demo"], "binaryPath": "builtin:agent"}]
    entry = {**machine.entry(), "name": "build-1"}
    path.write_text(
        json.dumps({"version": 1, "scalers": [scaler("fleet", "", [entry], labelSets=label_sets)]})
    )
    with open_site({"lease_seconds": 6.0}, path) as made:
        eventually(
            lambda: _state(made) == "up", LONG, why=lambda: str(made.gateway.get("/v1/status"))
        )
        yield made


def _state(site: Site) -> str:
    machines = site.gateway.get("/v1/status")["machines"]
    return next((each["state"] for each in machines if each["id"] == "build-1"), "unknown")


def test_a_job_runs_on_the_machine_and_soon(site: Site, machine: Sshd) -> None:
    site.submit("first", "echo $HOME; echo done")
    assert site.result("first").succeeded
    began = time.monotonic()
    site.submit("second", "echo done")

    assert site.result("second").succeeded
    assert time.monotonic() - began < QUICK_SECONDS
    assert site.printed("first")[-1] == "done"
    assert list((machine.state / "bare-metal").glob("agent-*.pyz"))


def test_a_job_goes_on_while_its_machine_cannot_be_reached_and_its_worker_is_killed(
    site: Site, machine: Sshd, tmp_path: Path
) -> None:
    may_end, runs = tmp_path / "may-end", tmp_path / "runs"
    site.submit(
        "long", f"echo ran >> {runs}; until [ -e {may_end} ]; do sleep 0.2; done; echo over"
    )
    site.agent_of("long")

    machine.stop()
    eventually(lambda: _state(site) == "unreachable", LONG)
    supervisor = site.installation.supervisor
    before = supervisor.starts("bare-metal")
    site.installation.kill("bare-metal")
    eventually(
        lambda: (
            supervisor.starts("bare-metal") > before
            and supervisor.states()["bare-metal"] is State.READY
        ),
        LONG,
    )
    may_end.touch()
    assert site.result("long").succeeded
    machine.start()

    assert site.printed("long") == ["over"]
    assert runs.read_text() == "ran\n"
    eventually(lambda: _state(site) == "up", LONG)
    eventually(lambda: not site.agents(), LONG, why=lambda: str(site.agents()))
    assert not list((machine.state / "bare-metal/agents").iterdir())
