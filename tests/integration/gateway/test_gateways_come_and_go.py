"""Gateways die, stop, freeze and lose Redis, and no job notices."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from kici_scaler.agent.protocol import CloseCode, JobFinishedAck, JobOffer
from kici_scaler.client import DispatcherClient
from kici_scaler.sealing import add_key
from kici_scaler.store import gateways
from kici_scaler.store.engine import transaction
from tests.integration.gateway.house import House, job_of, lines_of, log_of
from tests.integration.gateway.played_agent import played
from tests.support.waiting import eventually


def wait_for_file(mark: Path) -> tuple[str, ...]:
    """A command that says so, waits for a file, and says so again."""
    script = f"echo begun; while [ ! -e {mark} ]; do sleep 0.05; done; echo done"
    return ("sh", "-c", script)


def test_a_job_goes_on_while_its_gateway_is_killed_and_another_takes_over(house: House) -> None:
    first = house.gateway()
    mark = house.folder / "mark"
    order = house.order(first, *wait_for_file(mark))
    agent = house.agent(order, first)
    house.await_job(job_of(order), "running")
    first.kill()

    second = house.gateway(first.port)
    incarnation = house.scalar("SELECT incarnation FROM gateways ORDER BY started_at DESC LIMIT 1")
    eventually(
        lambda: (
            house.scalar("SELECT gateway FROM agents WHERE agent_id = :i", i=order.row.agent_id)
            == incarnation
        )
    )
    mark.touch()
    assert agent.exit_code() == 0, agent.log()
    house.await_job(job_of(order), "succeeded")
    client = house.client(second)
    assert lines_of(log_of(client, job_of(order))) == ["begun", "done"]
    assert client.get(f"/v1/agents/{order.row.agent_id}").json()["outcome"]["logTail"] == [
        "begun",
        "done",
    ]


def test_an_orderly_stop_sends_agents_elsewhere_and_starts_their_absence(house: House) -> None:
    first = house.gateway()
    mark = house.folder / "mark"
    order = house.order(first, *wait_for_file(mark))
    agent = house.agent(order, first)
    house.await_job(job_of(order), "running")
    assert first.stop() == 0, first.log()
    assert house.unseen(order.row.agent_id)
    assert house.scalar("SELECT count(*) FROM gateways WHERE dead_at IS NULL") == 0

    house.gateway(first.port)
    eventually(lambda: not house.unseen(order.row.agent_id))
    mark.touch()
    assert agent.exit_code() == 0
    house.await_job(job_of(order), "succeeded")


def test_a_followed_log_goes_on_over_a_restart_of_the_gateway(house: House) -> None:
    first = house.gateway()
    mark = house.folder / "mark"
    order = house.order(first, *wait_for_file(mark))
    agent = house.agent(order, first)
    heard: list[str] = []

    def follow() -> None:
        with DispatcherClient(first.url, house.dispatcher) as client:
            heard.extend(line.text for line in client.log(job_of(order)))

    follower = threading.Thread(target=follow)
    follower.start()
    waiting = house.client(first).build_request("GET", "/v1/events?after=1000000&wait=30")
    poll = threading.Thread(target=house.client(first).send, args=(waiting,))
    poll.start()
    house.await_job(job_of(order), "running")
    assert first.stop() == 0
    assert "Traceback" not in first.log()
    poll.join(5)
    assert not poll.is_alive()

    house.gateway(first.port)
    mark.touch()
    assert agent.exit_code() == 0, agent.log()
    follower.join(30)
    assert heard == ["begun", "done"]


def test_an_idle_gateway_stops_before_anyone_loses_patience(house: House) -> None:
    assert house.gateway().stop(within=15) == 0


def test_a_resume_token_survives_the_change_of_the_sealing_key(
    house: House, tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(house.seal_keys_path.read_bytes())
    path.chmod(0o600)
    house.seal_keys_path = path
    first = house.gateway()
    order = house.order(first)
    with played(first.agents_url, order) as agent:
        old = agent.register().resume_token
    add_key(path)
    second = house.gateway()
    with played(second.agents_url, order) as agent:
        ack = agent.register(connection=2, token=None, resume_token=old)
    with played(second.agents_url, order) as agent:
        agent.register(connection=3, token=None, resume_token=ack.resume_token)
        assert agent.expect(JobOffer).job_id == job_of(order)


def declare_dead(house: House) -> None:
    """What the sweep does to gateways that fell silent."""

    def done() -> bool:
        with transaction(house.runtime.engine) as connection:
            return bool(gateways.declare_dead(connection, stale_seconds=1))

    eventually(done, within=15)
    with transaction(house.runtime.engine) as connection:
        gateways.forsake(connection)


def test_a_gateway_that_was_frozen_takes_its_connections_back(house: House) -> None:
    gateway = house.gateway()
    order = house.order(gateway)
    with played(gateway.agents_url, order) as agent:
        agent.register()
        agent.run_job(job_of(order))
        gateway.signal(signal.SIGSTOP)
        declare_dead(house)
        assert house.unseen(order.row.agent_id)
        gateway.signal(signal.SIGCONT)
        eventually(lambda: not house.unseen(order.row.agent_id), within=15)
        agent.finish(job_of(order))
        agent.expect(JobFinishedAck)
    assert house.job_state(job_of(order)) == "succeeded"


def test_a_gateway_that_was_frozen_lets_go_of_agents_that_went_elsewhere(house: House) -> None:
    first, second = house.gateway(), house.gateway()
    order = house.order(first)
    with played(first.agents_url, order) as older, played(second.agents_url, order) as newer:
        older.register()
        first.signal(signal.SIGSTOP)
        newer.register(connection=2)
        with transaction(house.runtime.engine) as connection:
            connection.exec_driver_sql(
                "UPDATE gateways SET dead_at = clock_timestamp() WHERE incarnation ="
                " (SELECT incarnation FROM gateways ORDER BY started_at LIMIT 1)"
            )
        first.signal(signal.SIGCONT)
        assert older.closed(within=20) == CloseCode.REFUSED_FOR_NOW
        assert not house.unseen(order.row.agent_id)


def test_wake_ups_lost_with_redis_are_made_good_by_the_poll(house: House) -> None:
    gateway = house.gateway(environment={"KICI_LOCK_REDIS_URL": "redis://127.0.0.1:1/0"})
    order = house.order(gateway, "sleep", "300")
    client = house.client(gateway)
    agent = house.agent(order, gateway)
    house.await_job(job_of(order), "running")
    client.post(f"/v1/requests/{job_of(order)}/cancel")
    assert agent.exit_code() == 0
    house.await_job(job_of(order), "cancelled")


def test_refused_agents_make_their_address_wait_but_not_one_that_returns(house: House) -> None:
    gateway = house.gateway()
    order = house.order(gateway)
    with played(gateway.agents_url, order) as agent:
        resume = agent.register().resume_token
    codes = set()
    for _ in range(35):
        with played(gateway.agents_url, order) as agent:
            agent.say(agent.greeting(token="guess"))
            codes.add(agent.closed())
    assert codes == {CloseCode.REFUSED, CloseCode.REFUSED_FOR_NOW}
    with played(gateway.agents_url, order) as agent:
        agent.register(connection=2, resume_token=resume)
        assert agent.expect(JobOffer).job_id == job_of(order)
