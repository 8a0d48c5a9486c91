"""A machine that does not answer takes nothing new and loses nothing; it returns by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleets import FleetHouse, scaler, sleeper
from tests.support.sshd import Sshd, make_key
from tests.support.waiting import eventually
from workers.fleet import fleet


def test_a_machine_out_of_reach_keeps_its_agents_and_comes_back(
    house: FleetHouse, sshd: Sshd, tmp_path: Path
) -> None:
    house.configure(scaler("fleet", sleeper(tmp_path), [{**sshd.entry(), "name": "one"}]))
    house.worker("w")
    house.becomes("one", "up")
    house.ask("first")
    [spawn] = house.settles("booting", 1)
    living = [each.pid for each in house.processes()]

    sshd.stop()
    row = house.becomes("one", "unreachable")
    house.ask("second")
    house.tick()

    assert "no connection to `127.0.0.1" in row.note
    assert "machine `one` is unreachable" in house.waiting()[0]
    assert [each.pid for each in house.processes()] == living
    assert [each.agent_id for each in house.spawns()] == [spawn.agent_id]

    sshd.start()
    assert house.becomes("one", "up").note is None
    assert len(house.settles("booting", 2)) == 2
    assert set(living) <= {each.pid for each in house.processes()}


def test_a_key_that_is_not_trusted_is_refused_with_its_fingerprint(
    house: FleetHouse, sshd: Sshd, tmp_path: Path
) -> None:
    wrong = make_key(tmp_path / "another")
    known = tmp_path / "known_hosts"
    known.touch()
    unknown = {**sshd.entry(), "name": "unknown", "knownHostsFile": str(known)}
    del unknown["hostKey"]
    house.configure(
        scaler("fleet", sleeper(tmp_path), [unknown]),
        scaler("b", sleeper(tmp_path), [{**sshd.entry(), "name": "b", "hostKey": wrong}])
        | {"labelSets": [{"labels": ["b"], "binaryPath": "/bin/true"}]},
    )
    house.worker("w")

    eventually(
        lambda: all("SHA256:" in str(house.machine(each)) for each in ("unknown", "b")),
        40,
        why=lambda: f"{house.machine('unknown')} {house.machine('b')}",
    )
    house.ask("job")
    house.tick()

    assert "is not known" in house.machine("unknown").note
    [reason] = house.waiting()
    assert "machine `unknown` is unreachable: the host key of" in reason
    assert f"hostKey: {sshd.host_key}" in house.machine("unknown").note
    assert "is not the one that is trusted" in house.machine("b").note
    assert not sshd.state.exists()
    assert known.read_text() == ""


def test_one_worker_drives_a_machine_and_another_takes_over(
    house: FleetHouse, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.configure(scaler("fleet", sleeper(tmp_path), [{**sshd.entry(), "name": "one"}]))
    first, second = house.worker("w1"), house.worker("w2")
    house.becomes("one", "up")
    drives, waits = (first, second) if first.queues.consumed else (second, first)
    house.ask("job")
    [spawn] = house.settles("booting", 1)
    assert (drives.queues.consumed, waits.queues.consumed) == ({"one"}, set())

    monkeypatch.setattr(drives.host._fleet, "beat", lambda: None)

    eventually(lambda: waits.queues.consumed == {"one"}, 40)
    eventually(lambda: house.machine("one").driver == waits.runtime.owner)
    house.becomes("one", "up")
    assert [each.agent_id for each in house.spawns()] == [spawn.agent_id]

    monkeypatch.setattr(drives.host._fleet, "beat", fleet.Fleet.beat.__get__(drives.host._fleet))
    eventually(lambda: drives.queues.consumed == set(), 40)
    waits.host.close()
    house.workers.remove(waits)
    eventually(lambda: drives.queues.consumed == {"one"}, 40)
