"""What a fleet needs of the outside: a way to a machine, and hints about its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from workers.contract import Backend, BackendContext, Deadline


class SignOfLife(Protocol):
    """What a machine says of itself; names as Python's `sys` and `platform` have them."""

    @property
    def boot_id(self) -> str:
        """Changes with each boot."""

    @property
    def clock(self) -> float:
        """Epoch seconds by its own clock."""

    @property
    def system(self) -> str:
        """The operating system."""

    @property
    def machine(self) -> str:
        """The architecture."""

    @property
    def cpus(self) -> int:
        """How many CPUs may be used."""

    @property
    def memory_bytes(self) -> int:
        """How much memory it has."""


class RemoteBackend(Backend, Protocol):
    """A backend on a machine that has to be reached."""

    def hello(self, deadline: Deadline) -> SignOfLife:
        """A sign of life.

        Raises:
            NotDone: it gave none, and why.
        """

    def close(self) -> None:
        """Let go of connections; the next call opens them again."""


class MachineQueues(Protocol):
    """Hints about the rows of a machine come by queues of its own."""

    def consume(self, machine_id: str) -> None:
        """Be told of what is to be done on that machine."""

    def leave(self, machine_id: str) -> None:
        """Be told no more."""


OpenMachine = Callable[[BackendContext, Mapping[str, object]], RemoteBackend]
"""Opens the backend of a machine that a `machines` entry describes; connects to nothing yet."""


@dataclass(frozen=True, slots=True)
class FleetPorts:
    """How machines are reached, and how hints about them arrive."""

    open_machine: OpenMachine
    queues: MachineQueues
