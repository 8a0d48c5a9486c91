"""The whole system with its agents in containers: what jobs, outcomes and the machine show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from kici_scaler.client import JobRequest, JobResult, Payload
from kici_scaler.client.models import RegistryCredentials
from kici_scaler.embedded.child import State
from kici_scaler.service.inventory import RECLAIM_GRACE_SECONDS
from tests.e2e.container.engines import DockerEngine, TestEngine
from tests.e2e.container.images import AGENT, NO_PYTHON
from tests.e2e.container.registry import PASSWORD, USER, publish, registry
from tests.e2e.container.workshop import Workshop, soon
from tests.e2e.site import LONG, Site, open_site
from tests.support.waiting import eventually
from workers.host.host import STOCK_SECONDS
from workers.network.isolation import Isolation

WORKER = "container"
NEIGHBOUR = "somebody-else"
ROLES = ("control", WORKER, "beat", "gateway")

_HOG = "exec python3 -c 'kept = [bytearray(1 << 20) for _ in range(900)]'"

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True)
class Whole:
    """An installation, the runtime of its agents, and what was on that runtime before it."""

    site: Site
    engine: TestEngine
    strays: tuple[str, str]
    """A container that bears the installation's name and has no row; one of somebody else."""

    @property
    def installation_id(self) -> str:
        """What is written on the installation's containers."""
        return self.site.installation.profile.installation_id

    def submit(self, job_id: str, script: str, **more: Any) -> None:
        """Ask for an agent in a container for a shell script."""
        payload = Payload(("sh", "-c", script))
        self.site.scaler.request(
            JobRequest(job_id=job_id, run_id="e2e", labels=("linux",), payload=payload, **more)
        )

    def containers(self, **marks: str) -> list[str]:
        """The installation's containers, ended ones too, without the stray."""
        wanted = {"kici-installation": self.installation_id, **marks}
        api = self.engine.client()
        found = api.containers(
            all=True, filters={"label": [f"{key}={value}" for key, value in wanted.items()]}
        )
        api.close()
        return [each["Id"] for each in found if each["Id"] != self.strays[0]]

    def exists(self, container: str) -> bool:
        """Whether the runtime has it."""
        api = self.engine.client()
        found = api.containers(all=True, filters={"id": [container]})
        api.close()
        return bool(found)

    def outcome(self, result: JobResult) -> Mapping[str, Any]:
        """What was noted about the agent of a job, once it is gone."""

        def noted() -> Mapping[str, Any]:
            found: Mapping[str, Any] = self.site.gateway.get(f"/v1/agents/{result.agent_id}")
            return found["outcome"] or {}

        eventually(lambda: noted().get("goneAt"), LONG, why=lambda: f"{result}: {noted()}")
        return noted()

    def expect_nothing_left(self) -> None:
        """Wait until no row, no container and no rule of an agent is there.

        Rules that could not be taken away in time are found by the next stocktaking.
        """
        eventually(
            lambda: not self.site.agents() and not self.containers() and not self._with_rules(),
            LONG + STOCK_SECONDS,
            why=lambda: f"{self.site.agents()}; {self.containers()}; {self._with_rules()}",
        )

    def _with_rules(self) -> list[str]:
        """The installation's agents that rules are in force for, without the stray."""
        stray_id = self._agent_of(self.strays[0])
        owners = [
            each.agent_id
            for each in Isolation().addresses(soon())
            if each.installation_id == self.installation_id
        ]
        return [each for each in owners if each != stray_id]

    def _agent_of(self, container: str) -> str:
        if not self.exists(container):
            return ""
        api = self.engine.client()
        labels = api.inspect_container(container)["Config"]["Labels"]
        api.close()
        return str(labels["kici-agent-id"])


def _scaler_file(folder: Path, engine: TestEngine) -> Path:
    scaler = {
        "name": "boxes",
        "type": "container",
        "maxAgents": 4,
        **engine.options,
        "labelSets": [{"labels": ["linux"], "image": AGENT}],
    }
    file = folder / "scalers.yaml"
    file.write_text(json.dumps({"version": 1, "scalers": [scaler]}))
    return file


def _stray(engine: TestEngine, folder: Path, installation_id: str) -> str:
    """A running agent that nobody asked for."""
    workshop = Workshop(engine, folder, installation_id)
    spawned = workshop.open().spawn(workshop.order(), soon())
    return str(spawned.ref["container"])


@pytest.fixture(scope="module", params=["docker", "podman"])
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Whole]:
    """One installation on each runtime in turn; leases end soon, so that kills cost little."""
    engine: TestEngine = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp("whole")
    # From inside a container the gateway is at the machine's address on the agents' bridge.
    with open_site(
        {"lease_seconds": 10.0}, _scaler_file(folder, engine), roles=ROLES, host="0.0.0.0"
    ) as site:
        own = site.installation.profile.installation_id
        strays = (_stray(engine, folder / "a", own), _stray(engine, folder / "b", NEIGHBOUR))
        yield Whole(site, engine, strays)
    Workshop(engine, folder / "b", NEIGHBOUR).close()
    Workshop(engine, folder / "a", own).close()


def test_a_job_runs_in_a_container_that_is_gone_afterwards(whole: Whole) -> None:
    whole.submit("plain", "id -u; cat /proc/sys/net/ipv6/conf/all/disable_ipv6; exit 7")

    result = whole.site.result("plain")

    assert (result.state, result.exit_code) == ("failed", 7)
    assert whole.site.printed("plain") == ["1000", "1"]
    whole.expect_nothing_left()
    assert whole.outcome(result)["destroyReason"] == "job-complete"


def test_a_job_that_passes_its_memory_limit_is_killed_and_said_to_be(whole: Whole) -> None:
    whole.submit("hog", _HOG, resources={"memory": "128Mi"})

    result = whole.site.result("hog")

    assert (result.state, result.signal) == ("failed", 9)
    assert "the kernel killed 1 of its processes for memory" in str(result.error)
    whole.expect_nothing_left()


def test_an_agent_that_is_killed_fails_its_job_with_the_signal(whole: Whole) -> None:
    whole.submit("struck", "echo begun; sleep 600")
    agent_id = whole.site.agent_of("struck")["agentId"]
    [container] = whole.containers(**{"kici-agent-id": agent_id})
    api = whole.engine.client()
    api.kill(container, "SIGKILL")
    api.close()

    result = whole.site.result("struck")

    assert result.state == "failed"
    assert "ended by signal 9" in str(result.error)
    assert whole.outcome(result)["exitCause"]["signal"] == 9
    whole.expect_nothing_left()


def test_a_container_that_somebody_removed_fails_its_job_at_once(whole: Whole) -> None:
    whole.submit("robbed", "echo begun; sleep 600")
    agent_id = whole.site.agent_of("robbed")["agentId"]
    [container] = whole.containers(**{"kici-agent-id": agent_id})
    api = whole.engine.client()
    api.remove_container(container, force=True)
    api.close()

    result = whole.site.result("robbed")

    assert result.state == "failed"
    assert whole.outcome(result)["exitCause"]["kind"] == "absent"
    whole.expect_nothing_left()


def test_a_private_image_of_a_job_is_pulled_and_its_password_kept_nowhere(
    whole: Whole, tmp_path: Path
) -> None:
    with registry(tmp_path / "registry", locked=True) as shop:
        image = publish(whole.engine, shop, NO_PYTHON, f"whole-{whole.engine.runtime}")
        whole.submit(
            "private",
            "echo image says $IMAGE_SAYS",
            image=image,
            registry_credentials=RegistryCredentials(USER, PASSWORD),
        )
        result = whole.site.result("private")

    assert result.succeeded, result
    assert whole.site.printed("private") == ["image says hello"]
    whole.expect_nothing_left()
    for kept in _everything_kept(whole.site):
        assert PASSWORD not in kept


def _everything_kept(site: Site) -> Iterator[str]:
    """Every row of every table, and what every role has written."""
    with site.engine.connect() as connection:
        tables = connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ).scalars()
        for table in list(tables):
            yield from connection.execute(text(f"SELECT t::text FROM {table} t")).scalars()
    for role in ROLES:
        yield site.installation.log(role)


def test_a_job_outlives_its_worker(whole: Whole) -> None:
    whole.submit("long", "echo begun; sleep 8; echo done")
    whole.site.agent_of("long")
    supervisor = whole.site.installation.supervisor
    before = supervisor.starts(WORKER)

    whole.site.installation.kill(WORKER)

    assert whole.site.result("long").succeeded
    assert whole.site.printed("long") == ["begun", "done"]
    eventually(
        lambda: supervisor.starts(WORKER) > before and supervisor.states()[WORKER] is State.READY,
        LONG,
    )
    whole.expect_nothing_left()


def test_a_runtime_restarted_in_the_middle_of_a_job_costs_at_most_that_job(whole: Whole) -> None:
    whole.submit("caught", "echo begun; sleep 6; echo done")
    whole.site.agent_of("caught")

    whole.engine.stop()
    whole.engine.start()

    result = whole.site.result("caught")
    if isinstance(whole.engine, DockerEngine):
        # Docker stops what it runs when it is stopped, and an agent tells that to its job.
        assert not result.succeeded, result
        assert result.error, result
    else:
        assert result.succeeded, result
    whole.submit("next", "echo fine")
    assert whole.site.result("next").succeeded
    whole.expect_nothing_left()


@pytest.mark.long
def test_in_the_end_what_no_row_stands_for_is_gone_and_what_is_not_ours_is_there(
    whole: Whole,
) -> None:
    ours, theirs = whole.strays

    eventually(
        lambda: not whole.exists(ours),
        RECLAIM_GRACE_SECONDS + 2 * STOCK_SECONDS + LONG,
        why=lambda: whole.site.installation.log(WORKER)[-3000:],
    )

    assert whole.exists(theirs)
    with_rules = {each.installation_id for each in Isolation().addresses(soon())}
    assert with_rules & {whole.installation_id, NEIGHBOUR} == {NEIGHBOUR}
