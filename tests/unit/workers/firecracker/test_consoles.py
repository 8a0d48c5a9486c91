"""What guests and their microVMs print is passed on, with whose it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kici_scaler.domain.guest_addresses import GuestAddress
from tests.unit.workers.firecracker.orders import AGENT, order
from workers.firecracker import described
from workers.firecracker.consoles import Consoles
from workers.firecracker.layout import Layout


class Machine:
    """The microVMs of a machine, and what of them was passed on."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.places: dict[str, Layout] = {}
        self.passed_on: list[dict[str, object]] = []

    def add(self, agent_id: str) -> Layout:
        """A microVM that has printed nothing."""
        layout = Layout(self.base, agent_id)
        layout.root.mkdir(parents=True)
        guest = GuestAddress("10.0.0.2", "06:00:AC:00:00:02", "kici-456789ab")
        described.write(
            layout, described.described(order(run_id="r1"), "kici-br0", "10.0.0.0/24", guest)
        )
        layout.console.touch()
        layout.vmm_log.touch()
        self.places[agent_id] = layout
        return layout

    def follow(self) -> Consoles:
        """What a worker that starts at this moment has."""
        return Consoles(lambda: self.places, lambda line: self.passed_on.append(json.loads(line)))

    @property
    def messages(self) -> list[object]:
        """The texts alone."""
        return [each["message"] for each in self.passed_on]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without a microVM."""
    return Machine(tmp_path)


def _print(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_lines_are_passed_on_with_whose_they_are_and_how_bad(machine: Machine) -> None:
    consoles = machine.follow()
    consoles.look()
    layout = machine.add(AGENT)
    _print(layout.console, "booting\nKernel panic - not syncing\n")
    _print(layout.console, '{"level": "warn", "message": "Kernel panic"}\n')
    _print(layout.vmm_log, "no such drive\n")

    consoles.look()

    own = {"service": "agent", "agentId": AGENT, "runId": "r1"}
    serial, vmm = {"logsSource": "firecracker-serial"}, {"logsSource": "firecracker-vmm"}
    assert machine.passed_on == [
        {"level": "debug", "message": "booting", **own, **serial},
        {"level": "error", "message": "Kernel panic - not syncing", **own, **serial},
        {"level": "warn", "message": "Kernel panic", **own, **serial},
        {"level": "debug", "message": "no such drive", **own, **vmm},
    ]


def test_each_line_is_passed_on_once_and_only_when_it_is_whole(machine: Machine) -> None:
    consoles = machine.follow()
    consoles.look()
    layout = machine.add(AGENT)

    for text in ("one\ntw", "o\n", ""):
        _print(layout.console, text)
        consoles.look()

    assert machine.messages == ["one", "two"]


def test_the_last_words_of_a_microvm_that_is_gone_are_passed_on(machine: Machine) -> None:
    consoles = machine.follow()
    layout = machine.add(AGENT)
    consoles.look()
    _print(layout.console, "last words, without an end")
    machine.places.clear()
    shutil.rmtree(layout.home)

    consoles.look()
    consoles.look()

    assert machine.messages == ["last words, without an end"]


def test_what_was_printed_before_a_worker_began_is_not_repeated(machine: Machine) -> None:
    layout = machine.add(AGENT)
    _print(layout.console, "long ago\n")
    consoles = machine.follow()

    consoles.look()
    _print(layout.console, "now\n")
    consoles.look()

    assert machine.messages == ["now"]


def test_a_description_that_cannot_be_read_stops_nobodys_lines(machine: Machine) -> None:
    consoles = machine.follow()
    consoles.look()
    layout = machine.add(AGENT)
    layout.description.write_text("{")
    _print(layout.console, "one\n")

    consoles.look()

    assert machine.messages == ["one"]
