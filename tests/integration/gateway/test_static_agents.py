"""Agents that no scaler made register with a key, are offered jobs first, and stay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kici_scaler.agent.protocol import (
    CloseCode,
    ConfigAck,
    JobAccepted,
    JobCancel,
    JobDeclined,
    JobFinishedAck,
    JobOffer,
    JobPhase,
    JobStart,
    JobStatus,
    Leaving,
    Register,
    RegisterAck,
)
from kici_scaler.agent.vocabulary import DeclineReason, LeaveReason
from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.service import admit, keys, sweep
from tests.integration.gateway.house import GatewayProcess, House
from tests.integration.gateway.played_agent import FACTS, PlayedAgent, claim_of, played
from tests.support.agent_process import agent_process
from tests.support.waiting import eventually


@pytest.fixture
def key(shared: House) -> str:
    """A key that lets its agents have any label."""
    return keys.create(shared.runtime, scope=KeyScope.AGENT, name=shared.new_job()).token


def _say_hello(agent: PlayedAgent, key: str, name: str, label: str, **more: Any) -> RegisterAck:
    said: dict[str, Any] = {"connection": 1, "facts": FACTS, "token": key}
    labels = more.pop("labels", (label,))
    agent.say(Register(protocol=1, agent_id=name, labels=labels, **(said | more)))
    ack = agent.expect(RegisterAck)
    agent.say(ConfigAck())
    return ack


@contextlib.contextmanager
def static(
    gateway: GatewayProcess, key: str, name: str, label: str, **more: Any
) -> Iterator[PlayedAgent]:
    """A connected static agent with one label of its own."""
    with played(gateway.agents_url) as agent:
        _say_hello(agent, key, name, label, **more)
        yield agent


def _request(house: House, gateway: GatewayProcess, label: str, **more: Any) -> str:
    job_id = house.new_job()
    body = house.body(job_id, **{"labels": [label], **more})
    answer = house.client(gateway).post("/v1/requests", json=body)
    assert answer.status_code == 201, answer.text
    return job_id


def _names(house: House) -> tuple[str, str]:
    number = house.new_job()
    return f"static-{number}", f"label-{number}"


def test_it_is_told_that_no_scaler_made_it(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, label = _names(shared)
    with played(gateway.agents_url) as agent:
        ack = _say_hello(agent, key, name, label)
    assert not ack.scaler_managed
    assert not ack.pending_dispatch
    assert ack.scaler is None


def test_it_serves_one_job_after_another_and_stays(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, label = _names(shared)
    with static(gateway, key, name, label) as agent:
        for status, state in [(JobStatus.SUCCEEDED, "succeeded"), (JobStatus.FAILED, "failed")] * 2:
            job_id = _request(shared, gateway, label)
            agent.run_job(job_id)
            agent.log(job_id, 1, "hello")
            agent.finish(job_id, status=status)
            agent.expect(JobFinishedAck)
            assert shared.job_state(job_id) == state
            lines = shared.client(gateway).get(f"/v1/requests/{job_id}/log").text
            assert "hello" in lines


def test_it_comes_before_an_agent_that_would_have_to_be_started(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, _ = _names(shared)
    with static(gateway, key, name, "", labels=("linux", "demo")) as agent:
        first = _request(shared, gateway, "linux", labels=["linux", "demo"])
        assert agent.expect(JobOffer).job_id == first
        second = _request(shared, gateway, "linux", labels=["linux", "demo"])
        spawn = "SELECT agent_id FROM spawns WHERE job_id = :job"
        assert shared.scalar(spawn, job=first) is None
        assert shared.scalar(spawn, job=second) is not None
        agent.say(JobAccepted(first))
        agent.expect(JobStart)
        agent.finish(first)
        agent.expect(JobFinishedAck)


def test_a_job_that_only_an_occupied_one_serves_waits_and_says_so(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, label = _names(shared)
    with static(gateway, key, name, label) as agent:
        first = _request(shared, gateway, label)
        agent.run_job(first)
        second = _request(shared, gateway, label)
        told = shared.client(gateway).get(f"/v1/requests/{second}").json()
        assert "occupied" in told["reason"], told
        agent.finish(first)
        agent.expect(JobFinishedAck)
        admit.run_pass(shared.runtime)
        agent.run_job(second)
        agent.finish(second)
        agent.expect(JobFinishedAck)


def test_who_comes_later_gets_what_waits(shared: House, gateway: GatewayProcess, key: str) -> None:
    name, label = _names(shared)
    job_id = _request(shared, gateway, label)
    assert shared.job_state(job_id) == "waiting"
    with static(gateway, key, name, label) as agent:
        admit.run_pass(shared.runtime)
        agent.run_job(job_id)
        agent.finish(job_id)
        agent.expect(JobFinishedAck)
    assert shared.job_state(job_id) == "succeeded"


def test_a_declined_job_goes_elsewhere_and_is_not_offered_to_the_same_again(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, label = _names(shared)
    other = f"{name}-other"
    with static(gateway, key, name, label) as agent:
        job_id = _request(shared, gateway, label)
        assert agent.expect(JobOffer).job_id == job_id
        agent.say(JobDeclined(job_id, DeclineReason.BUSY))
        shared.await_job(job_id, "waiting")
        with static(gateway, key, other, label) as second:
            admit.run_pass(shared.runtime)
            second.run_job(job_id)
            second.finish(job_id)
            second.expect(JobFinishedAck)
    told = shared.client(gateway).get(f"/v1/requests/{job_id}").json()
    assert "declined" in told["lastProvisioningError"]


def test_one_that_dies_before_it_accepted_loses_the_offer_and_the_job_waits_again(
    house: House,
) -> None:
    gateway = house.gateway()
    token = keys.create(house.runtime, scope=KeyScope.AGENT, name="static").token
    with static(gateway, token, "static-1", "own") as agent:
        job_id = _request(house, gateway, "own")
        agent.expect(JobOffer)
    eventually(lambda: house.unseen("static-1"))
    _overdue(house, job_id, "static_deadline_at")
    eventually(lambda: _swept(house, job_id) == "waiting", 20)
    requeues = house.scalar("SELECT requeues FROM scale_requests WHERE job_id = :j", j=job_id)
    assert requeues == 1


def test_one_that_dies_busy_fails_its_job_only_after_its_absence_lasted(house: House) -> None:
    gateway = house.gateway()
    token = keys.create(house.runtime, scope=KeyScope.AGENT, name="static").token
    with static(gateway, token, "static-1", "own") as agent:
        job_id = _request(house, gateway, "own")
        agent.run_job(job_id)
    eventually(lambda: house.unseen("static-1"))
    assert _swept(house, job_id) == "running"
    house.scalar(
        "UPDATE agents SET unseen_since = clock_timestamp() - interval '1801 s'"
        " WHERE agent_id = 'static-1' RETURNING 1"
    )
    eventually(lambda: _swept(house, job_id) == "failed", 20)
    # It returns, still working on what is no longer its own, and is told to stop.
    with static(
        gateway, token, "static-1", "own", connection=2, job=claim_of(job_id, JobPhase.RUNNING)
    ) as agent:
        assert agent.expect(JobCancel).job_id == job_id
        agent.finish(job_id, status=JobStatus.CANCELLED)
        agent.expect(JobFinishedAck)
        house.scalar("UPDATE agents SET resting_until = NULL RETURNING 1")
        following = _request(house, gateway, "own")
        agent.run_job(following)
    assert house.job_state(job_id) == "failed"


def _overdue(house: House, job_id: str, column: str) -> None:
    house.scalar(
        f"UPDATE scale_requests SET {column} = clock_timestamp() - interval '1 s'"
        " WHERE job_id = :job RETURNING 1",
        job=job_id,
    )


def _swept(house: House, job_id: str) -> str | None:
    _overdue(house, job_id, "static_due_at")
    sweep.sweep(house.runtime)
    return house.job_state(job_id)


def test_a_running_job_goes_on_over_a_dropped_connection(
    shared: House, gateway: GatewayProcess, second_gateway: GatewayProcess, key: str
) -> None:
    name, label = _names(shared)
    with static(gateway, key, name, label) as agent:
        job_id = _request(shared, gateway, label)
        agent.run_job(job_id)
    claim = claim_of(job_id, JobPhase.RUNNING)
    with static(second_gateway, key, name, label, connection=2, job=claim) as agent:
        agent.finish(job_id)
        agent.expect(JobFinishedAck)
    assert shared.job_state(job_id) == "succeeded"


def test_a_job_is_cancelled_while_it_is_offered_and_while_it_runs(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, label = _names(shared)
    client = shared.client(gateway)
    with static(gateway, key, name, label) as agent:
        offered = _request(shared, gateway, label)
        agent.expect(JobOffer)
        client.post(f"/v1/requests/{offered}/cancel", json={"reason": "enough"})
        assert shared.job_state(offered) == "cancelled"
        agent.say(JobAccepted(offered))
        assert agent.expect(JobCancel).job_id == offered
        agent.finish(offered, status=JobStatus.CANCELLED)
        agent.expect(JobFinishedAck)
        running = _request(shared, gateway, label)
        agent.run_job(running)
        client.post(f"/v1/requests/{running}/cancel", json={"reason": "enough"})
        assert agent.expect(JobCancel).reason == "enough"
        agent.finish(running, status=JobStatus.CANCELLED)
        agent.expect(JobFinishedAck)
    assert shared.job_state(running) == "cancelled"


def test_one_that_does_not_stop_is_sent_off_and_free_again_once_it_holds_nothing(
    house: House,
) -> None:
    gateway = house.gateway()
    token = keys.create(house.runtime, scope=KeyScope.AGENT, name="static").token
    overdue = (
        "UPDATE agents SET stopping_until = clock_timestamp() - interval '1 s'"
        " WHERE agent_id = 'static-1' RETURNING 1"
    )
    with static(gateway, token, "static-1", "own") as agent:
        job_id = _request(house, gateway, "own")
        agent.run_job(job_id)
        _overdue(house, job_id, "static_deadline_at")
        eventually(lambda: _swept(house, job_id) == "failed", 20)
        assert agent.expect(JobCancel).job_id == job_id
        house.scalar(overdue)
        assert agent.closed(20) == CloseCode.REFUSED_FOR_NOW
    claim = claim_of(job_id, JobPhase.RUNNING)
    with static(gateway, token, "static-1", "own", connection=2, job=claim) as agent:
        assert agent.expect(JobCancel).job_id == job_id
        assert agent.closed(20) == CloseCode.REFUSED_FOR_NOW, "no new time for the same job"
    with static(gateway, token, "static-1", "own", connection=3) as agent:
        house.scalar("UPDATE agents SET resting_until = NULL RETURNING 1")
        agent.run_job(_request(house, gateway, "own"))


def test_one_that_leaves_is_forgotten_at_once(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, label = _names(shared)
    with static(gateway, key, name, label) as agent:
        agent.say(Leaving(LeaveReason.SIGNAL))
        eventually(lambda: not _is_known(shared, name))


def _is_known(house: House, name: str) -> bool:
    return bool(house.scalar("SELECT count(*) FROM agents WHERE agent_id = :n", n=name))


@pytest.mark.parametrize(
    ("labels", "welcome"),
    [(("a",), True), (("a", "kici:os:linux"), True), (("a", "b"), False), (("b",), False)],
)
def test_a_key_limits_the_labels_of_its_agents(
    shared: House, gateway: GatewayProcess, labels: tuple[str, ...], welcome: bool
) -> None:
    name, _ = _names(shared)
    limited = keys.create(
        shared.runtime, scope=KeyScope.AGENT, name=name, labels=["A"], gate=["a"]
    ).token
    with played(gateway.agents_url) as agent:
        if welcome:
            assert _say_hello(agent, limited, name, "", labels=labels).mandatory_labels == ("a",)
        else:
            agent.say(Register(1, name, labels, 1, FACTS, token=limited))
            assert agent.closed() == CloseCode.REFUSED


def test_a_label_that_is_derived_is_refused_unless_the_key_names_it(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, _ = _names(shared)
    with played(gateway.agents_url) as agent:
        agent.say(Register(1, name, ("kici:scaler:local",), 1, FACTS, token=key))
        assert agent.closed() == CloseCode.REFUSED
    named = keys.create(
        shared.runtime, scope=KeyScope.AGENT, name=name, labels=["kici:role:builder"]
    ).token
    with played(gateway.agents_url) as agent:
        _say_hello(agent, named, name, "kici:role:builder")


@pytest.mark.parametrize("scope", [KeyScope.DISPATCHER, KeyScope.OPERATOR])
def test_a_key_of_another_scope_makes_no_agent(
    shared: House, gateway: GatewayProcess, scope: KeyScope
) -> None:
    name, label = _names(shared)
    token = keys.create(shared.runtime, scope=scope, name=name).token
    with played(gateway.agents_url) as agent:
        agent.say(Register(1, name, (label,), 1, FACTS, token=token))
        assert agent.closed() == CloseCode.REFUSED


def test_it_is_listed_and_shown_and_never_destroyed(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, label = _names(shared)
    client = shared.client(gateway)
    with static(gateway, key, name, label) as agent:
        job_id = _request(shared, gateway, label)
        agent.run_job(job_id)
        (listed,) = [
            each for each in client.get("/v1/agents").json()["static"] if each["agentId"] == name
        ]
        assert (listed["state"], listed["jobId"]) == ("busy", job_id)
        assert client.get(f"/v1/agents/{name}").json()["static"]["labels"] == [label]
        assert client.get("/v1/status").json()["staticAgents"]["busy"] == 1
        told = client.get(f"/v1/requests/{job_id}").json()
        assert (told["agentId"], told["state"]) == (name, "running")
        refused = client.post(f"/v1/agents/{name}/destroy")
        assert refused.status_code == 409
        assert "no scaler made" in refused.text
        agent.finish(job_id)
        agent.expect(JobFinishedAck)


def test_the_reference_agent_serves_job_after_job(
    shared: House, gateway: GatewayProcess, key: str
) -> None:
    name, label = _names(shared)
    environment = {"KICI_AGENT_ID": name, "KICI_LABELS": label, "KICI_AGENT_TOKEN": key,
                   "KICI_SCALER_MANAGED": None}  # fmt: skip
    with agent_process(gateway.agents_url, shared.folder / name, environment) as agent:
        eventually(lambda: _is_known(shared, name), 20, why=agent.log)
        for command, state in [(("true",), "succeeded"), (("false",), "failed")]:
            job_id = shared.new_job()
            body = shared.body(job_id, *command, labels=[label])
            shared.client(gateway).post("/v1/requests", json=body)
            shared.await_job(job_id, state, 20)
        assert agent.process.poll() is None, agent.log()
