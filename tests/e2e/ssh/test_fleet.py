"""Two hundred agents over three machines, while links, servers, machines and workers die."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kici_scaler.service import request
from tests.e2e.ssh.conftest import Workers
from tests.e2e.ssh.machines import NamespaceMachine
from tests.support.fleets import FleetHouse, scaler, sleeper
from tests.support.waiting import eventually

AGENTS = 200
LONG = 400.0
"""Seconds; the machines, the database and the workers share this one's cores."""

SIGNING = 'echo "$KICI_AGENT_ID" >> "$WITNESS"\nexec sleep 100000'


def _running_on(machine: NamespaceMachine, program: str) -> Counter[str]:
    """How many processes of each agent run there, by its process table."""
    found: Counter[str] = Counter()
    for each in machine.processes():
        environment = each.environ()
        if each.name() == "sleep" and environment.get("WITNESS") == program:
            found[environment["KICI_AGENT_ID"]] += 1
    return found


def _expect(house: FleetHouse, machines: Sequence[NamespaceMachine], witness: Path) -> None:
    """Each spawn that is said to run runs once, where its row says; and nothing else runs."""

    def found() -> dict[str, Counter[str]]:
        return {each.name: _running_on(each, str(witness)) for each in machines}

    def wanted() -> dict[str, Counter[str]]:
        rows = house.spawns("booting")
        return {
            each.name: Counter(row.agent_id for row in rows if row.machine_id == each.name)
            for each in machines
        }

    eventually(lambda: found() == wanted(), 120, why=lambda: _difference(found(), wanted()))
    starts = Counter(witness.read_text().split())
    assert not [agent for agent, times in starts.items() if times > 1]


def _difference(found: dict[str, Counter[str]], wanted: dict[str, Counter[str]]) -> str:
    return "; ".join(
        f"{name}: too many {found[name] - wanted[name]}, too few {wanted[name] - found[name]}"
        for name in wanted
    )


def test_two_hundred_agents_survive_everything_that_dies_around_them(
    house: FleetHouse, machines: list[NamespaceMachine], workers: Workers, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    witness = tmp_path / "witness"
    witness.touch()
    program = sleeper(tmp_path, SIGNING)
    label_set = {"labels": ["linux"], "binaryPath": program, "env": {"WITNESS": str(witness)}}
    house.configure(
        scaler(
            "fleet",
            program,
            [each.entry() for each in machines],
            maxAgents=AGENTS,
            maxConcurrentSpawns=16,
            labelSets=[label_set],
        )
    )
    workers.start()
    first, second, third = machines
    for each in machines:
        house.becomes(each.name, "up", 120)

    house.ask(*(f"job-{number}" for number in range(AGENTS)))
    _until_booting(house, workers, dice.randrange(10, 30))
    first.cut()
    workers.replace()
    _until_booting(house, workers, dice.randrange(50, 70))
    second.kill_sshd()
    assert house.becomes(first.name, "unreachable", 120).note
    workers.replace()
    second.serve()
    _until_booting(house, workers, dice.randrange(100, 120))
    workers.replace()
    first.mend()
    house.settles("booting", AGENTS, LONG)
    house.becomes(first.name, "up", 120)
    _expect(house, machines, witness)

    on_third = {each.agent_id for each in house.spawns() if each.machine_id == third.name}
    others = {each.agent_id for each in house.spawns()} - on_third
    third.reboot()
    _until_gone(house, workers, on_third)
    house.settles("booting", AGENTS, LONG)
    assert others <= {each.agent_id for each in house.spawns()}
    _expect(house, machines, witness)
    causes = house.rows("SELECT DISTINCT condemned_why FROM outcomes WHERE agent_id = ANY(:ids)",
                        ids=sorted(on_third))  # fmt: skip
    assert all("restarted" in str(each.condemned_why) for each in causes), causes

    for number in range(AGENTS):
        request.cancel(house.runtime, f"job-{number}")
    _until_fewer(house, workers, dice.randrange(120, 180))
    workers.replace()
    second.cut()
    _until_fewer(house, workers, dice.randrange(80, 110))
    second.mend()
    workers.replace()
    house.settles("%", 0, LONG)
    eventually(lambda: not any(each.processes() for each in machines), 60,
               why=lambda: str([each.processes() for each in machines]))  # fmt: skip
    for each in machines:
        assert not list((each.state / "bare-metal/agents").iterdir())


def _until_booting(house: FleetHouse, workers: Workers, count: int) -> None:
    _until(house, workers, lambda: len(house.spawns("booting")) >= count)


def _until_fewer(house: FleetHouse, workers: Workers, count: int) -> None:
    _until(house, workers, lambda: len(house.spawns()) <= count)


def _until_gone(house: FleetHouse, workers: Workers, agents: set[str]) -> None:
    _until(house, workers, lambda: not agents & {each.agent_id for each in house.spawns()})


def _until(house: FleetHouse, workers: Workers, holds: object) -> None:
    assert callable(holds)

    def step() -> bool:
        house.tick()
        return bool(holds())

    eventually(step, LONG, why=lambda: f"{len(house.spawns())}; {workers.logs()}")
