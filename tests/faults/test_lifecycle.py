"""Outages and flapping around living agents: nobody is condemned for what nobody could see."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from tests.faults.checker import check, keep_history, still_open, wait_for_quiet
from tests.faults.jobs import Job, ask_for_all, dispatcher
from tests.faults.stage import Cast, Stage, stage
from tests.support.waiting import eventually


def _busy(the: Stage) -> int:
    return int(str(the.rows("SELECT count(*) AS n FROM spawns WHERE state = 'busy'")[0]["n"]))


def _seen(the: Stage) -> int:
    row = the.rows("SELECT count(*) AS n FROM agents WHERE unseen_since IS NULL")
    return int(str(row[0]["n"]))


def _unseen(the: Stage) -> int:
    row = the.rows("SELECT count(*) AS n FROM agents WHERE unseen_since IS NOT NULL")
    return int(str(row[0]["n"]))


def _was_started_again(the: Stage, name: str, starts: int) -> bool:
    return the.roles.supervisor.starts(name) > starts


def _long_jobs(count: int, seconds: float) -> list[Job]:
    return [Job(f"long-{number}", seconds) for number in range(count)]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("count", "seconds"), [(6, 12.0), (50, 110.0)])
def test_a_database_outage_condemns_no_busy_agent_and_loses_no_result(
    tmp_path: Path, count: int, seconds: float
) -> None:
    """Jobs end while nobody can store that; their agents keep the result until they can."""
    with stage(tmp_path, most_agents=count) as the, dispatcher(the) as client:
        keep_history(the)
        wanted = _long_jobs(count, seconds)
        ask_for_all(client, the, wanted)
        eventually(lambda: _busy(the) == count, within=seconds, why=lambda: still_open(the))
        the.postgres.refuse()
        the.postgres.drop()
        eventually(
            lambda: all("ended" in (the.witness / job.id).read_text() for job in wanted),
            within=seconds + 60,
        )
        the.postgres.listen()
        wait_for_quiet(the, wanted, within=90)
        findings = check(the, wanted)
        assert findings.none, findings
        assert {row["state"] for row in the.rows("SELECT state FROM scale_requests")} == {
            "succeeded"
        }


@pytest.mark.long
@pytest.mark.timeout(600)
def test_agents_of_a_killed_gateway_go_on_and_are_adopted_by_another(tmp_path: Path) -> None:
    with (
        stage(tmp_path, Cast(gateways=2), most_agents=5) as the,
        dispatcher(the) as client,
    ):
        keep_history(the)
        wanted = _long_jobs(5, 10.0)
        ask_for_all(client, the, wanted)
        eventually(lambda: _busy(the) == 5, within=60)
        the.show(1)
        the.kill("gateway-0")
        the.front.drop()
        # The second adopts them all while their jobs still run.
        eventually(lambda: _adopters(the) == 1 and _seen(the) == 5, within=60)
        wait_for_quiet(the, wanted, within=90)
        findings = check(the, wanted)
        assert findings.none, findings


def _adopters(the: Stage) -> int:
    rows = the.rows("SELECT DISTINCT gateway FROM agents WHERE unseen_since IS NULL")
    return len(rows)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("count", "seconds"), [(6, 14.0), (100, 240.0)])
def test_a_rolling_restart_of_all_gateways_fails_no_running_job(
    tmp_path: Path, count: int, seconds: float
) -> None:
    with (
        stage(tmp_path, Cast(gateways=2), most_agents=count) as the,
        dispatcher(the) as client,
    ):
        keep_history(the)
        wanted = _long_jobs(count, seconds)
        ask_for_all(client, the, wanted)
        eventually(lambda: _busy(the) == count, within=seconds, why=lambda: still_open(the))
        for number in (0, 1):
            the.show(1 - number)
            name = f"gateway-{number}"
            starts = the.roles.supervisor.starts(name)
            the.kill(name, signal.SIGTERM)
            eventually(partial(_was_started_again, the, name, starts), within=60)
            eventually(lambda: _unseen(the) == 0, within=60, why=lambda: still_open(the))
        wait_for_quiet(the, wanted, within=seconds + 120)
        findings = check(the, wanted)
        assert findings.none, findings


@pytest.mark.long
@pytest.mark.timeout(400)
def test_gateways_that_lose_the_database_alone_condemn_nobody(tmp_path: Path) -> None:
    """The sweep goes on and sees every gateway fall silent: then nobody can have been seen."""
    with stage(tmp_path, Cast(gateways=2), most_agents=4) as the, dispatcher(the) as client:
        keep_history(the)
        wanted = _long_jobs(4, 80.0)
        ask_for_all(client, the, wanted)
        eventually(lambda: _busy(the) == 4, within=60)
        the.gateways_postgres.refuse()
        the.gateways_postgres.drop()
        eventually(lambda: _seen(the) == 0, within=60, why="every gateway was declared dead")
        # Longer than any absence that is forgiven on this stage.
        eventually(lambda: _absent_for(the) > 65, within=120)
        assert _busy(the) == 4
        the.gateways_postgres.listen()
        wait_for_quiet(the, wanted, within=120)
        findings = check(the, wanted)
        assert findings.none, findings


def _absent_for(the: Stage) -> float:
    row = the.rows(
        "SELECT coalesce(extract(epoch FROM clock_timestamp() - max(unseen_since)), 0) AS seconds"
        " FROM agents"
    )
    return float(str(row[0]["seconds"]))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_frozen_gateway_that_wakes_finds_its_agents_alive(tmp_path: Path) -> None:
    """Declared dead meanwhile, it takes a new incarnation and claims its open sockets again."""
    with stage(tmp_path, most_agents=3) as the, dispatcher(the) as client:
        keep_history(the)
        wanted = _long_jobs(3, 16.0)
        ask_for_all(client, the, wanted)
        eventually(lambda: _busy(the) == 3, within=60)
        pid = the.roles.supervisor.pid("gateway-0")
        assert pid is not None
        the.kill("gateway-0", signal.SIGSTOP)
        eventually(lambda: _seen(the) == 0, within=60, why="the gateway was declared dead")
        the.kill("gateway-0", signal.SIGCONT)
        eventually(lambda: _seen(the) == 3, within=60, why="its agents are seen again")
        assert the.roles.supervisor.pid("gateway-0") == pid
        wait_for_quiet(the, wanted, within=90)
        findings = check(the, wanted)
        assert findings.none, findings


@pytest.mark.long
@pytest.mark.timeout(400)
def test_what_a_frozen_worker_creates_after_its_spawn_was_destroyed_is_removed(
    tmp_path: Path,
) -> None:
    """The zombie wakes past its lease; the fence of the name, or the stocktaking, ends it."""
    with stage(tmp_path, Cast(workers=2), most_agents=2) as the, dispatcher(the) as client:
        keep_history(the)
        the.arm("start.taken", "stop")
        wanted = [Job("zombie", 0.2)]
        ask_for_all(client, the, wanted)
        eventually(lambda: the.frozen_at("start.taken"), within=30)
        client.cancel("zombie", reason="no longer wanted")
        eventually(lambda: not the.rows("SELECT 1 FROM spawns"), within=60)
        for name in the.names:
            if the.roles.supervisor.pid(name) in the.frozen_at("start.taken"):
                the.kill(name, signal.SIGCONT)
        after = [Job("afterwards", 0.2)]
        ask_for_all(client, the, after)
        wait_for_quiet(the, [*wanted, *after], within=60)
        eventually(lambda: check(the, after).none, within=30, why=lambda: str(check(the, after)))
        state = the.rows("SELECT state FROM scale_requests WHERE job_id = 'zombie'")
        assert state == [{"state": "cancelled"}]
