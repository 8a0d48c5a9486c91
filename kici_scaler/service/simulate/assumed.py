"""What a simulation takes for granted, and the machines it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.machines import MachineView
from kici_scaler.domain.routing import RoutingTable
from kici_scaler.domain.scalers import BackendType, Cluster


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Times in seconds; `machines` is how many hosts run workers of every local kind.

    Attributes:
        spawn_seconds: how long one start keeps its spawn slot.
        boot_seconds: from then on until the agent is connected.
        end_seconds: from the end of a job until its agent holds nothing any more.
    """

    facts: MachineFacts
    machines: int = 1
    spawn_seconds: float = 2.0
    boot_seconds: float = 5.0
    end_seconds: float = 3.0


def machines_of(cluster: Cluster, assumed: Assumptions) -> tuple[MachineView, ...]:
    """The hosts of workers, and every machine that a fleet lists; all are up."""
    return (*_hosts(cluster, assumed), *_fleet(cluster, assumed))


def _hosts(cluster: Cluster, assumed: Assumptions) -> Iterator[MachineView]:
    kinds: set[BackendType] = {
        each.type for each in cluster.scalers if each.type.is_local and not each.machines
    }
    for number in range(1, assumed.machines + 1):
        for kind in sorted(kinds):
            yield MachineView(f"machine-{number}", kind, assumed.facts, None)


def _fleet(cluster: Cluster, assumed: Assumptions) -> Iterator[MachineView]:
    seen: set[tuple[str, BackendType]] = set()
    for scaler in cluster.scalers:
        for machine in scaler.machines:
            if (machine.name, scaler.type) not in seen:
                seen.add((machine.name, scaler.type))
                yield MachineView(machine.name, scaler.type, assumed.facts, None, is_remote=True)


def table_of(cluster: Cluster, machines: tuple[MachineView, ...]) -> RoutingTable:
    """Who serves what on these machines."""
    return RoutingTable.build(
        cluster,
        {
            scaler.name: sorted(
                {
                    facts
                    for each in machines
                    if each.is_for(scaler) and (facts := each.facts_for(scaler)) is not None
                },
                key=lambda facts: (facts.os, facts.arch, sorted(facts.labels)),
            )
            for scaler in cluster.scalers
        },
    )
