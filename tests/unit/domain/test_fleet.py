"""Scalers with a fleet run on the machines they list, within what those declare and hold."""

from __future__ import annotations

from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.limits import Held
from kici_scaler.domain.machines import MachineView, capacities, machines_for
from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import BackendType, Cap, Cluster, FleetMachine, LabelSet, Scaler
from kici_scaler.domain.usage import Ledger

KIND = BackendType.BARE_METAL
SETS = (LabelSet(0, ("linux",)),)
LINUX = MachineFacts("linux", "x64")


def scaler(name: str, *machines: FleetMachine) -> Scaler:
    return Scaler(name, KIND, 10, SETS, machines=machines)


def view(name: str, *, remote: bool = True, cpus: int = 8) -> MachineView:
    return MachineView(
        name, KIND, LINUX, None, is_remote=remote, capacity=Cap(cpus * 1000, 64 << 30)
    )


def test_a_fleet_is_the_listed_machines_and_no_workers_own_host() -> None:
    machines = [view("a"), view("b"), view("host", remote=False), view("c", remote=False)]
    fleet = scaler("fleet", FleetMachine("a"), FleetMachine("c"))

    assert machines_for(fleet, (), machines)[0] == ("a",)
    assert machines_for(scaler("here"), (), machines)[0] == ("c", "host")


def test_labels_of_a_machine_are_offered_to_the_scaler_that_declares_them() -> None:
    gpu = scaler("gpu", FleetMachine("a", labels=frozenset({"gpu"})))
    plain = scaler("plain", FleetMachine("a"))

    assert view("a").facts_for(gpu) == MachineFacts("linux", "x64", frozenset({"gpu"}))
    assert view("a").facts_for(plain) == LINUX


def test_of_several_declared_capacities_the_smaller_counts_and_else_what_the_machine_says() -> None:
    cluster = Cluster(
        (
            scaler("one", FleetMachine("a", capacity=Cap(6000)), FleetMachine("b")),
            scaler("two", FleetMachine("a", capacity=Cap(4000, 1 << 30))),
        )
    )

    found = capacities(cluster, [view("a"), view("b", cpus=2), view("host", remote=False)])

    assert found == {"a": Cap(4000, 1 << 30), "b": Cap(2000, 64 << 30)}


def test_a_machine_is_full_for_every_scaler_once_its_capacity_is_reserved() -> None:
    one, two = scaler("one", FleetMachine("a")), scaler("two", FleetMachine("a"))
    cluster = Cluster((one, two), global_max_agents=99)
    ledger = Ledger(cluster, [Held("one", "a", None, 1, 3000, 0)], {"a": Cap(4000, None)})

    room = ledger.rooms(two, ("a",))
    assert room.best(Need(1000, 0)) is not None
    assert room.best(Need(2000, 0)) is None
    assert room.shortage(Need(2000, 0)) == (
        "capacity on machine `a`: 3 of 4 CPUs are taken and 2 are needed"
    )
    ledger.take(ledger.room(two, "a"), Need(1000, 0))
    assert ledger.rooms(one, ("a",)).best(Need(1000, 0)) is None


def test_the_agents_of_a_scaler_on_a_machine_are_bounded_by_the_smaller_number() -> None:
    one = scaler("one", FleetMachine("a", max_agents=2), FleetMachine("b", max_agents=99))
    cluster = Cluster((one,), global_max_agents=99)
    held = [Held("one", "a", None, 2, 0, 0), Held("one", "b", None, 9, 0, 0)]

    rooms = Ledger(cluster, held, {}).rooms(one, ("a", "b"))

    best = rooms.best(Need(0, 0))
    assert best is not None
    assert best.machine_id == "b"
