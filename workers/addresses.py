"""How a backend gets addresses for its guests, whoever keeps the book."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from kici_scaler.domain.guest_addresses import GuestAddress, GuestNetwork


class AddressBook(Protocol):
    """The addresses of one machine. Every call raises `NotDone` when the book cannot be used."""

    def allocate(
        self,
        agent_id: str,
        scaler: str,
        network: GuestNetwork,
        taps: Iterable[str],
        foreign: Collection[str],
    ) -> GuestAddress:
        """The agent's address: the one it has, or the lowest free one.

        `taps` are the names its interface may have; `foreign` are addresses and names that
        others have on the machine.
        """

    def release(self, agent_id: str) -> bool:
        """Give it back; whether there was one."""

    def held(self) -> Mapping[str, GuestAddress]:
        """All that are taken, by agent id."""

    def unowned(self) -> frozenset[str]:
        """Agents that have had an address for a while and that no row stands for."""

    def connected(self) -> frozenset[str]:
        """Agents with an address that have connected: they have read what they were told."""
