"""What counts for the cluster as a whole: caps over all workers, absence, failures, backoff."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kici_scaler import scalers_file
from kici_scaler.domain.request import Result
from kici_scaler.service import admit, claim, register, request, sweep
from kici_scaler.service.claim import Redeemed
from kici_scaler.service.hello import Hello, Welcome
from kici_scaler.service.request_body import parse_request
from tests.integration.event.conftest import DONE, DOWN, ONE, REFUSED, SCALERS, UP, Cloud


def body(job: str, *labels: str) -> dict[str, object]:
    return {
        "jobId": job,
        "runId": "run",
        "labels": list(labels or ("linux", "cloud")),
        "payload": {"keyId": "key", "sealed": "c2VhbGVk"},
    }


def submit(cloud: Cloud, *jobs: str) -> list[Result]:
    bodies = [parse_request(body(job)) for job in jobs]
    return [answer.result for answer in request.submit(cloud.runtime, bodies)]


@pytest.fixture
def few(cloud: Cloud, tmp_path: Path) -> Cloud:
    """The same cluster with at most three agents."""
    file = tmp_path / "few.yaml"
    file.write_text(SCALERS.replace("maxAgents: 50", "maxAgents: 3"))
    cloud.rows.execute("UPDATE config_revisions SET active = false")
    document = scalers_file.load(file).document
    cloud.revision = cloud.rows.revision(active=True, document=document)
    return cloud


def test_the_cap_is_the_clusters_however_many_decide_at_once(few: Cloud) -> None:
    jobs = [[f"job-{worker}-{number}" for number in range(4)] for worker in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = [each for found in pool.map(lambda names: submit(few, *names), jobs)
                   for each in found]  # fmt: skip
    admit.run_pass(few.runtime)
    assert few.rows.count("spawns") == 3
    assert few.rows.count("spawns", "machine_id IS NULL AND backend_type = 'event'") == 3
    assert answers.count(Result.SPAWNING) <= 3


def test_a_provision_keeps_its_place_until_it_is_gone(few: Cloud) -> None:
    assert submit(few, "a", "b", "c") == [Result.SPAWNING] * 3
    few.begin()
    few.tell(UP, DONE)
    (agent,) = few.rows.all("SELECT agent_id FROM spawns WHERE job_id = 'a'")
    few.end(agent[0])
    assert submit(few, "d") == [Result.AT_CAPACITY]
    few.tell(DOWN, DONE)
    assert few.rows.count("spawns") == 2
    admit.run_pass(few.runtime)
    assert few.rows.count("spawns") == 3


def test_a_failed_provision_backs_the_scaler_off_and_a_registration_forgives_it(
    cloud: Cloud,
) -> None:
    booted = cloud.asked(ONE)
    (order,) = cloud.take(UP)
    cloud.record(order, DONE)
    submit(cloud, "first")
    cloud.begin()
    cloud.tell(UP, REFUSED)
    assert submit(cloud, "second") == [Result.SKIPPED]
    reason = cloud.rows.get("scale_requests", "second")["wait_reason"]
    assert "scaler `cloud` backs off" in reason
    assert cloud.rows.get("scale_requests", "first")["requeues"] == 1
    register_agent(cloud, booted, cloud.code_in(order))
    assert cloud.rows.one("SELECT failure_streak FROM scaler_states") == 0
    assert submit(cloud, "third") == [Result.SPAWNING]


def register_agent(cloud: Cloud, agent: str, code: str) -> None:
    """Let the agent of a provision prove itself at a gateway that knows nothing of it."""
    found = claim.redeem(cloud.runtime, code, address="192.0.2.1")
    assert isinstance(found, Redeemed)
    hello = Hello(agent, found.labels, 1, token=found.agent_token)
    welcome = register.register(cloud.runtime, cloud.rows.gateway(), hello)
    assert isinstance(welcome, Welcome)


def absent(cloud: Cloud, seconds: float, *, adopter: str) -> str:
    """A provision whose busy agent nobody has seen for so long."""
    job = cloud.rows.request(state="running")
    agent = cloud.booting(job=job)
    if not cloud.rows.count("gateways"):
        cloud.rows.gateway("alive")
        cloud.rows.gateway("dead", dead_at=datetime.now(UTC))
    cloud.connected(agent, gateway=adopter)
    cloud.rows.execute("UPDATE spawns SET state = 'busy', busy_at = clock_timestamp()"
                       " WHERE agent_id = :a", a=agent)  # fmt: skip
    cloud.rows.shift("agents", agent, unseen_since=-seconds)
    cloud.rows.shift("spawns", agent, due_at=-1.0, deadline_at=3600.0)
    return agent


@pytest.mark.parametrize(
    ("adopter", "seconds", "condemned"),
    [
        ("dead", 119.0, False),
        ("dead", 121.0, True),
        ("alive", 121.0, False),
        ("alive", 1_799.0, False),
        ("alive", 1_801.0, True),
    ],
)
def test_an_absent_agent_is_given_the_grace_that_its_adopters_fate_allows(
    cloud: Cloud, adopter: str, seconds: float, condemned: bool
) -> None:
    agent = absent(cloud, seconds, adopter=adopter)
    sweep.sweep(cloud.runtime)
    assert (cloud.state(agent) == "destroying") is condemned
    assert [row["reason"] for row in cloud.deliveries(agent, DOWN)] == (
        ["heartbeat-timeout"] if condemned else []
    )


@pytest.mark.parametrize(
    "blind",
    [
        lambda cloud: cloud.rows.execute("UPDATE gateways SET dead_at = clock_timestamp()"),
        lambda cloud: cloud.rows.execute(
            "UPDATE observation SET watched_at = clock_timestamp() - interval '1 hour'"
        ),
    ],
    ids=["no gateway lives", "nobody watched for an hour"],
)
def test_nobody_is_condemned_for_what_nobody_could_see(
    cloud: Cloud, blind: Callable[[Cloud], object]
) -> None:
    agent = absent(cloud, 5_000.0, adopter="alive")
    blind(cloud)
    sweep.sweep(cloud.runtime)
    assert cloud.state(agent) == "busy"
