"""A machine reached by SSH has a row of its own and takes work like any other."""

from __future__ import annotations

from pathlib import Path

from kici_scaler.service import request
from tests.support.fleets import FleetHouse, scaler, sleeper
from tests.support.sshd import Sshd
from tests.support.waiting import eventually
from workers.machine import boot_id


def test_a_job_is_served_and_its_agent_taken_away(
    house: FleetHouse, sshd: Sshd, tmp_path: Path
) -> None:
    house.configure(scaler("fleet", sleeper(tmp_path), [{**sshd.entry(), "name": "one"}]))
    house.worker("w")

    row = house.becomes("one", "up")
    house.ask("job")
    [spawn] = house.settles("booting", 1)

    assert (row.address, row.boot_id, row.serves) == ("127.0.0.1", boot_id(), ["fleet"])
    assert (spawn.machine_id, spawn.backend_ref["machine"]) == ("one", "one")
    assert house.processes()
    request.cancel(house.runtime, "job")
    house.settles("%", 0)
    assert house.processes() == []


def test_a_fleet_is_not_served_by_a_workers_own_host_nor_the_other_way_round(
    house: FleetHouse, sshd: Sshd, tmp_path: Path
) -> None:
    program = sleeper(tmp_path)
    here = {
        **scaler("here", program, []),
        "labelSets": [{"labels": ["here"], "binaryPath": program}],
    }
    del here["machines"]
    house.configure(scaler("fleet", program, [{**sshd.entry(), "name": "one"}]), here)
    house.worker("w")
    house.becomes("one", "up")

    house.ask("there-1", "there-2")
    house.ask("here-1", labels=("here",))

    placed = {(each.scaler, each.machine_id) for each in house.settles("booting", 3)}
    assert placed == {("fleet", "one"), ("here", "w")}


def test_what_a_machine_declares_bounds_it_and_is_offered(
    house: FleetHouse, sshd: Sshd, tmp_path: Path
) -> None:
    entry = {**sshd.entry(), "name": "one", "labels": ["gpu"], "maxAgents": 2}
    house.configure(scaler("fleet", sleeper(tmp_path), [entry]))
    house.worker("w")
    house.becomes("one", "up")

    house.ask("a", "b", "c", labels=("linux", "gpu"))

    booting = house.settles("booting", 2)
    assert all("gpu" in each.agent_labels for each in booting)
    assert house.waiting() == ["scaler `fleet` holds 2 of its 2 agents on machine `one`"]


def test_a_machine_that_left_the_configuration_is_emptied_and_forgotten(
    house: FleetHouse, sshd: Sshd, tmp_path: Path
) -> None:
    program = sleeper(tmp_path)
    house.configure(scaler("fleet", program, [{**sshd.entry(), "name": "one"}]))
    house.worker("w")
    house.becomes("one", "up")
    house.ask("job")
    house.settles("booting", 1)

    house.configure(scaler("fleet", program, [{"address": "192.0.2.1", "name": "other"}]))
    request.cancel(house.runtime, "job")
    house.settles("%", 0)

    eventually(lambda: house.machine("one") is None, 40, why=lambda: str(house.machine("one")))
    assert house.processes() == []
