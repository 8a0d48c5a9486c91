"""Giving guests their addresses, each to one guest of a machine.

Crash table: a worker that dies after the commit leaves an address that its agent's next start
finds again; when there is none, its destroy gives the address back, and where no row is left to
be destroyed, the machine's own stocktaking does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kici_scaler.domain.guest_addresses import (
    GuestAddress,
    GuestNetwork,
    PoolExhausted,
    first_free,
    mac_of,
)
from kici_scaler.errors import KiciError
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import guest_addresses
from kici_scaler.store.engine import transaction

MOST_TRIES = 16
"""How often an address that somebody else took first is picked anew; the reference's number."""


class NoAddressLeft(KiciError):
    """Every address of a machine's network is taken; nothing was taken."""


class TooContended(KiciError):
    """Others took every address that was picked, again and again; nothing was taken."""


def allocate(
    runtime: Runtime,
    *,
    machine_id: str,
    agent_id: str,
    scaler: str,
    network: GuestNetwork,
    taps: Iterable[str],
    foreign: Collection[str] = (),
) -> GuestAddress:
    """The agent's address on that machine: the one it has, or the lowest free one.

    Args:
        taps: the names that its interface may have, the best first.
        foreign: addresses and names that others have there without a row in this database.

    Raises:
        NoAddressLeft: no address is free.
        TooContended: sixteen picks were lost to others.
        DatabaseUnreachable: the database does not answer.
    """
    names = tuple(taps)
    for _ in range(MOST_TRIES):
        with transaction(runtime.engine) as connection:
            there = guest_addresses.of_machine(connection, machine_id)
            if agent_id in there:
                return there[agent_id]
            wanted = _pick(there.values(), network, names, foreign)
            if guest_addresses.take(connection, machine_id, agent_id, scaler, wanted):
                return wanted
    raise TooContended(
        f"heavy contention for addresses of {network.range}: {MOST_TRIES} picks were lost",
        hint="lower `maxConcurrentSpawns`",
    )


def _pick(
    there: Iterable[GuestAddress],
    network: GuestNetwork,
    names: tuple[str, ...],
    foreign: Collection[str],
) -> GuestAddress:
    known = list(there)
    taken_names = {*(each.tap for each in known), *foreign}
    tap = next((each for each in names if each not in taken_names), None)
    if tap is None:
        raise TooContended(f"every name for its interface is taken: {', '.join(names)}")
    try:
        address = first_free(network, {*(each.address for each in known), *foreign})
    except PoolExhausted as error:
        hint = "widen `firecracker.cidr`, or lower `maxAgents`"
        raise NoAddressLeft(str(error), hint=hint) from error
    return GuestAddress(address, mac_of(address), tap)


def release(runtime: Runtime, *, machine_id: str, agent_id: str) -> bool:
    """Give the agent's address back; whether it had one.

    Raises:
        DatabaseUnreachable: the database does not answer.
    """
    with transaction(runtime.engine) as connection:
        return guest_addresses.release(connection, machine_id, agent_id)


def held(runtime: Runtime, *, machine_id: str) -> Mapping[str, GuestAddress]:
    """Every address of a machine that is taken, by agent id.

    Raises:
        DatabaseUnreachable: the database does not answer.
    """
    with transaction(runtime.engine) as connection:
        return guest_addresses.of_machine(connection, machine_id)


def unowned(runtime: Runtime, *, machine_id: str, older_than_seconds: float) -> frozenset[str]:
    """Agents that have an address there, and that no row stands for.

    Raises:
        DatabaseUnreachable: the database does not answer.
    """
    with transaction(runtime.engine) as connection:
        return guest_addresses.unowned(connection, machine_id, older_than_seconds)


def connected(runtime: Runtime, *, machine_id: str) -> frozenset[str]:
    """Agents with an address there that have registered, so hold all that they were told.

    Raises:
        DatabaseUnreachable: the database does not answer.
    """
    with transaction(runtime.engine) as connection:
        return guest_addresses.connected(connection, machine_id)
