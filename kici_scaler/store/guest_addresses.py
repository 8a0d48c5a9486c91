"""Addresses that guests on a machine's bridge have: one row an agent, unique by constraint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row

from kici_scaler.domain.guest_addresses import GuestAddress
from kici_scaler.store.bulk import sql

_OF_AGENT = sql("""
    SELECT host(address) AS address, mac, tap FROM guest_addresses
    WHERE machine_id = :machine AND agent_id = :agent
""")

_OF_MACHINE = sql("""
    SELECT agent_id, host(address) AS address, mac, tap FROM guest_addresses
    WHERE machine_id = :machine
""")

# Whoever else takes the address, the name or the agent first wins; then nothing is returned.
_TAKE = sql("""
    INSERT INTO guest_addresses (machine_id, address, agent_id, scaler, tap, mac)
    VALUES (:machine, CAST(:address AS inet), :agent, :scaler, :tap, :mac)
    ON CONFLICT DO NOTHING RETURNING agent_id
""")

_RELEASE = sql("""
    DELETE FROM guest_addresses WHERE machine_id = :machine AND agent_id = :agent
    RETURNING agent_id
""")

_UNOWNED = sql("""
    SELECT agent_id FROM guest_addresses g
    WHERE machine_id = :machine
      AND allocated_at < clock_timestamp() - make_interval(secs => :older)
      AND NOT EXISTS (SELECT 1 FROM spawns s WHERE s.agent_id = g.agent_id)
""")

_CONNECTED = sql("""
    SELECT agent_id FROM guest_addresses JOIN spawns USING (agent_id)
    WHERE guest_addresses.machine_id = :machine AND state IN ('idle', 'busy')
""")


def of_agent(connection: Connection, machine_id: str, agent_id: str) -> GuestAddress | None:
    """What the agent has on that machine; None when it has nothing."""
    row = connection.execute(_OF_AGENT, {"machine": machine_id, "agent": agent_id}).one_or_none()
    return None if row is None else _address(row)


def of_machine(connection: Connection, machine_id: str) -> Mapping[str, GuestAddress]:
    """What all agents of a machine have, by agent id."""
    rows = connection.execute(_OF_MACHINE, {"machine": machine_id})
    return {row.agent_id: _address(row) for row in rows}


def take(
    connection: Connection, machine_id: str, agent_id: str, scaler: str, wanted: GuestAddress
) -> bool:
    """Take an address; False when it, its name or the agent's one place is taken by now."""
    about = {
        "machine": machine_id,
        "agent": agent_id,
        "scaler": scaler,
        "address": wanted.address,
        "tap": wanted.tap,
        "mac": wanted.mac,
    }
    return connection.execute(_TAKE, about).one_or_none() is not None


def release(connection: Connection, machine_id: str, agent_id: str) -> bool:
    """Give an agent's address back; whether it had one."""
    asked = {"machine": machine_id, "agent": agent_id}
    return connection.execute(_RELEASE, asked).one_or_none() is not None


def unowned(connection: Connection, machine_id: str, older_than_seconds: float) -> frozenset[str]:
    """Agents of a machine that have had an address for so long, and that no row stands for."""
    asked = {"machine": machine_id, "older": older_than_seconds}
    return frozenset(row.agent_id for row in connection.execute(_UNOWNED, asked))


def connected(connection: Connection, machine_id: str) -> frozenset[str]:
    """Agents of a machine that have an address and have registered."""
    rows = connection.execute(_CONNECTED, {"machine": machine_id})
    return frozenset(row.agent_id for row in rows)


def _address(row: Row[Any]) -> GuestAddress:
    return GuestAddress(row.address, row.mac, row.tap)
