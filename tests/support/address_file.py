"""A book of guest addresses in a file, for tests of a machine without a database."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from kici_scaler.domain.guest_addresses import (
    GuestAddress,
    GuestNetwork,
    PoolExhausted,
    first_free,
    mac_of,
)
from workers.errors import NotDone
from workers.records import write_whole


@dataclass(frozen=True)
class AddressFile:
    """The addresses of one machine; see `workers.addresses.AddressBook`."""

    path: Path

    def allocate(
        self,
        agent_id: str,
        _scaler: str,
        network: GuestNetwork,
        taps: Iterable[str],
        foreign: Collection[str],
    ) -> GuestAddress:
        with self._changed() as book:
            if agent_id not in book:
                taken = {each.address for each in book.values()} | set(foreign)
                names = {each.tap for each in book.values()} | set(foreign)
                address = _free(network, taken)
                tap = next(each for each in taps if each not in names)
                book[agent_id] = GuestAddress(address, mac_of(address), tap)
            return book[agent_id]

    def release(self, agent_id: str) -> bool:
        with self._changed() as book:
            return book.pop(agent_id, None) is not None

    def held(self) -> Mapping[str, GuestAddress]:
        with self._changed() as book:
            return dict(book)

    def unowned(self) -> frozenset[str]:
        return frozenset()

    def connected(self) -> frozenset[str]:
        return frozenset(self.held())

    @contextmanager
    def _changed(self) -> Iterator[dict[str, GuestAddress]]:
        with FileLock(f"{self.path}.lock"):
            text = self.path.read_text() if self.path.exists() else "{}"
            book = {agent: GuestAddress(**each) for agent, each in json.loads(text).items()}
            yield book
            # Its caller may be killed at any moment.
            write_whole(self.path, {agent: asdict(each) for agent, each in book.items()})


def _free(network: GuestNetwork, taken: Collection[str]) -> str:
    try:
        return first_free(network, taken)
    except PoolExhausted as error:
        raise NotDone(str(error)) from error
