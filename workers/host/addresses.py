"""The book of a machine's guest addresses, kept in the database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kici_scaler.domain.guest_addresses import GuestAddress, GuestNetwork
from kici_scaler.errors import KiciError
from kici_scaler.service import guest_addresses
from kici_scaler.service.inventory import RECLAIM_GRACE_SECONDS
from kici_scaler.service.runtime import Runtime
from workers.errors import NotDone

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DatabaseAddresses:
    """The addresses of one machine; see `workers.addresses.AddressBook`."""

    runtime: Runtime
    machine_id: str

    def allocate(
        self,
        agent_id: str,
        scaler: str,
        network: GuestNetwork,
        taps: Iterable[str],
        foreign: Collection[str],
    ) -> GuestAddress:
        return _asked(
            lambda: guest_addresses.allocate(
                self.runtime,
                machine_id=self.machine_id,
                agent_id=agent_id,
                scaler=scaler,
                network=network,
                taps=taps,
                foreign=foreign,
            )
        )

    def release(self, agent_id: str) -> bool:
        return _asked(
            lambda: guest_addresses.release(
                self.runtime, machine_id=self.machine_id, agent_id=agent_id
            )
        )

    def held(self) -> Mapping[str, GuestAddress]:
        return _asked(lambda: guest_addresses.held(self.runtime, machine_id=self.machine_id))

    def unowned(self) -> frozenset[str]:
        return _asked(
            lambda: guest_addresses.unowned(
                self.runtime,
                machine_id=self.machine_id,
                older_than_seconds=RECLAIM_GRACE_SECONDS,
            )
        )

    def connected(self) -> frozenset[str]:
        return _asked(lambda: guest_addresses.connected(self.runtime, machine_id=self.machine_id))


def _asked(call: Callable[[], T]) -> T:
    """A commit whose answer was lost is no harm: every call may be repeated."""
    try:
        return call()
    except KiciError as error:
        raise NotDone(str(error), hint=error.hint) from error
