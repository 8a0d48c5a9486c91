"""Agents that behave in every way, on a machine that lacks this and that."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kici_scaler.domain.scalers import Amount, BackendType, LabelSet, Scaler
from tests.e2e.ssh.machines import NETWORK, NamespaceMachine
from tests.support.fleets import FleetHouse, scaler, sleeper
from tests.support.waiting import eventually, free_port
from workers.bare_metal import BareMetalBackend
from workers.bare_metal.backend import on_link
from workers.bare_metal.ssh.dial import Timeouts, dial
from workers.bare_metal.ssh.link import Link
from workers.bare_metal.ssh.target import Target
from workers.contract import BackendContext, ComputeRef, Deadline, ExitKind, SpawnOrder
from workers.errors import NotDone, Permanent, Unreachable
from workers.machine import local_machine


def soon(seconds: float = 90.0) -> Deadline:
    return Deadline.after(seconds)


class Ground:
    """One machine, and orders for agents on it."""

    def __init__(self, folder: Path, machine: NamespaceMachine) -> None:
        self.folder = folder
        self.machine = machine
        self.installation_id = f"test-{secrets.token_hex(4)}"
        self.link = Link(machine.target())
        context = BackendContext(self.installation_id, local_machine(machine.name), folder)
        self.backend: BareMetalBackend = on_link(context, self.link)
        self._token = 0

    def order(self, source: str, **more: Any) -> SpawnOrder:
        """An order for an agent that is this shell script."""
        self._token += 1
        program = sleeper(self.folder, source)
        given: dict[str, Any] = {
            "installation_id": self.installation_id,
            "scaler": "pool",
            "agent_id": f"scaler-bare-metal-{secrets.token_hex(6)}",
            "lease_token": self._token,
            "label_set": LabelSet(0, ("linux",), options={"binaryPath": program}),
            "gateway_url": "ws://127.0.0.1:1/v1/agents",
            "agent_token": "secret",
            **more,
        }
        return SpawnOrder(**given)

    def run(self, source: str, **more: Any) -> str:
        """Start it; its id."""
        order = self.order(source, **more)
        self.backend.spawn(order, soon())
        return order.agent_id

    def ref(self, agent_id: str) -> ComputeRef:
        self._token += 1
        return ComputeRef(self.installation_id, "pool", agent_id, self._token)

    def destroy(self, agent_id: str) -> None:
        self.backend.destroy(self.ref(agent_id), soon())

    def commands(self) -> list[str]:
        """What runs there."""
        return sorted(each.name() for each in self.machine.processes())

    def inside(self, *command: str) -> None:
        """Run a command in its mounts."""
        pid = self.machine.first.pid
        subprocess.run(["nsenter", f"--mount=/proc/{pid}/ns/mnt", *command], check=True,
                       capture_output=True)  # fmt: skip


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """A machine of the test's own."""
    machine = NamespaceMachine(tmp_path / "m1", 1).start()
    made = Ground(tmp_path, machine)
    yield made
    made.link.close()
    machine.stop()


def test_one_that_ignores_being_told_to_end_is_ended(ground: Ground) -> None:
    agent_id = ground.run("trap '' TERM INT HUP\nwhile :; do sleep 1; done")

    ground.destroy(agent_id)

    assert ground.commands() == []
    assert ground.backend.inventory(ground.installation_id, soon()) == ()


def test_what_it_leaves_behind_in_other_sessions_goes_with_it(ground: Ground) -> None:
    agent_id = ground.run(
        "setsid sh -c 'sleep 1000 & setsid sleep 1001' &\n(setsid sleep 1002 &)\nexec sleep 1003"
    )
    eventually(lambda: ground.commands().count("sleep") == 4, 30)

    ground.destroy(agent_id)

    assert ground.commands() == []


def test_what_a_daemon_leaves_when_its_agent_ends_is_ended_too(ground: Ground) -> None:
    agent_id = ground.run("(setsid sleep 1000 &)\nsleep 1\nexit 4")

    cause = eventually(lambda: ground.backend.exit_cause(ground.ref(agent_id), soon()), 30)

    assert cause is not None
    assert (cause.kind, cause.exit_code) == (ExitKind.EXITED, 4)
    eventually(lambda: ground.commands() == [], 30, why=lambda: str(ground.commands()))


def test_one_that_ends_at_once_fails_with_its_code_and_its_words(ground: Ground) -> None:
    order = ground.order("echo no licence found\nexit 7")
    # On a host that is busy enough it outlives the moment for which a start is watched.
    with suppress(Permanent):
        ground.backend.spawn(order, soon())
    cause = eventually(lambda: ground.backend.exit_cause(ground.ref(order.agent_id), soon()), 30)

    assert cause is not None
    assert (cause.kind, cause.exit_code) == (ExitKind.EXITED, 7)
    assert cause.log_tail == ("no licence found",)


def test_a_flood_of_output_is_kept_in_part_and_its_end_can_be_read(ground: Ground) -> None:
    agent_id = ground.run(
        "yes 0123456789abcdef | head -c 200000000\necho\necho the end\nexec sleep 100"
    )

    eventually(
        lambda: ground.backend.logs(ground.ref(agent_id), 50, soon())[-1:] == ("the end",), 120
    )
    kept = (ground.machine.state / "bare-metal/agents" / agent_id).glob("output.log*")

    assert sum(each.stat().st_size for each in kept) <= 4 << 20
    assert len(ground.backend.logs(ground.ref(agent_id), 50, soon())) == 50


def test_a_memory_limit_is_enforced_where_cgroups_can_be_made(ground: Ground) -> None:
    pool = Scaler("pool", BackendType.BARE_METAL, 1, (LabelSet(0, ("linux",)),),
                  options={"enforceCgroups": True})  # fmt: skip
    if any("no effect" in each.message for each in ground.backend.check([pool], soon())):
        pytest.skip("no cgroup can be made here")
    eater = 'sleep 1\nexec python3 -c "x = bytearray(500 << 20); import time; time.sleep(60)"'

    agent_id = ground.run(eater, limits=Amount(None, 64 << 20), options=pool.options)
    cause = eventually(lambda: ground.backend.exit_cause(ground.ref(agent_id), soon()), 60)

    assert cause is not None
    assert cause.kind is ExitKind.OUT_OF_MEMORY


def test_an_agent_outlives_its_connection_and_is_found_after_the_machine_restarted(
    ground: Ground,
) -> None:
    agent_id = ground.run("exec sleep 1000")
    ground.machine.kill_sshd()
    ground.machine.serve()
    assert ground.backend.exit_cause(ground.ref(agent_id), soon()) is None

    ground.machine.reboot()
    [found] = ground.backend.inventory(ground.installation_id, soon())
    cause = ground.backend.exit_cause(ground.ref(agent_id), soon())

    assert (found.agent_id, found.running) == (agent_id, False)
    assert cause is not None
    assert (cause.kind, cause.detail) == (ExitKind.VANISHED, "the machine was restarted")
    assert ground.backend.reclaim(ground.ref(agent_id), soon())
    assert ground.backend.inventory(ground.installation_id, soon()) == ()


def test_a_full_disk_starts_nothing_and_ends_with_the_fullness(ground: Ground) -> None:
    state = ground.machine.state
    state.mkdir()
    ground.inside("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(state))
    disk = Path(f"/proc/{ground.machine.first.pid}/root{state}")
    _fill(disk / "filler")

    with pytest.raises(NotDone, match="No space left"):
        ground.run("exec sleep 1000")
    assert ground.commands() == []

    (disk / "filler").unlink()
    running = ground.run("exec sleep 1000")
    _fill(disk / "filler")
    with pytest.raises(NotDone, match="No space left"):
        ground.run("exec sleep 1000")
    ground.destroy(running)
    (disk / "filler").unlink()
    assert ground.run("exec sleep 1000")
    assert ground.commands().count("sleep") == 1


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2


def test_a_machine_is_reached_through_another(ground: Ground, tmp_path: Path) -> None:
    second = NamespaceMachine(tmp_path / "m2", 2).start()
    try:
        entry = {**second.entry(), "jumpHost": ground.machine.entry()}
        link = Link(Target.parse(entry))
        context = BackendContext(ground.installation_id, local_machine("m2"), tmp_path)
        assert on_link(context, link).hello(soon()).hostname == "m2"
        link.close()
    finally:
        second.stop()


def test_one_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server((f"{NETWORK}.1", free_port())) as silent:
        address, port = silent.getsockname()
        began = time.monotonic()

        with pytest.raises(Unreachable, match=r"no connection|not answer in time"):
            dial(Target(address, port=port), soon(), Timeouts(banner=1.0, authenticate=1.0))

        assert time.monotonic() - began < 20


def test_what_a_machine_lacks_stands_in_its_row_and_the_others_go_on(
    house: FleetHouse, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    good = NamespaceMachine(tmp_path / "m1", 1).start()
    bare = NamespaceMachine(tmp_path / "m2", 2, path=str(tmp_path / "bin")).start()
    other = {**good.entry(), "name": "foe", "hostKey": bare.host_key}
    try:
        program = sleeper(tmp_path)
        house.configure(scaler("fleet", program, [good.entry(), bare.entry()]),
                        {**scaler("b", program, [other]),
                         "labelSets": [{"labels": ["b"], "binaryPath": program}]})  # fmt: skip
        house.worker("w")
        house.becomes(good.name, "up")
        house.ask("a", "b", "c")

        assert {each.machine_id for each in house.settles("booting", 3)} == {good.name}
        _note_says(house, bare.name, "has no python3")
        _note_says(house, "foe", "SHA256:")
        assert "install Python 3.8" in house.machine(bare.name).note
    finally:
        house.close()
        house.workers.clear()
        good.stop()
        bare.stop()


def _note_says(house: FleetHouse, name: str, words: str) -> None:
    eventually(lambda: words in house.machine(name).note, 30, why=lambda: house.machine(name).note)
