"""Putting right what no call of its own does: lost rules, stale rules, what was left behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import structlog

from workers.container import containers, networks, runtime_volume
from workers.container.engine import Connection
from workers.container.marks import POLICY, PURPOSE, SCALER, owner_in
from workers.container.networks import AgentNetwork
from workers.container.seen import Listed
from workers.container.tools import Tools, own_container
from workers.network.access import AgentAccess, Owner

FILLER_SECONDS = 600.0
"""Packing the agent takes seconds; what has been at it for this long was left behind."""

_log = structlog.get_logger()


def accesses_of(found: Iterable[Listed]) -> dict[Owner, AgentAccess]:
    """What isolated agents may reach, by what is written on their running containers.

    A container whose policy cannot be read is left out: it reaches nothing.
    """
    known: dict[Owner, AgentAccess] = {}
    for each in found:
        owner, address = owner_in(each.marks), each.addresses.get(networks.NAME)
        if owner is None or not address or not each.is_running or POLICY not in each.marks:
            continue
        try:
            known[owner] = AgentAccess.from_json(owner, address, json.loads(each.marks[POLICY]))
        except (KeyError, TypeError, ValueError) as error:
            _log.warning("an agent's network policy cannot be read", agent=str(owner), why=error)
    return known


def restore_rules(
    connection: Connection, tools: Tools, found: Sequence[Listed]
) -> tuple[Owner, ...]:
    """Put rules in force again that should be and are not; whose they are.

    Somebody may have flushed the host's rules; from then on agents reached whatever they liked.
    """
    wanted = accesses_of(found)
    if not wanted:
        return ()
    there = tools.isolation.addresses(connection.deadline)
    lost = [access for owner, access in wanted.items() if there.get(owner) != access.address]
    if not lost:
        return ()
    network = networks.ensure(connection)
    return tuple(each.owner for each in lost if _restored(connection, tools, network, each))


def _restored(
    connection: Connection, tools: Tools, network: AgentNetwork, access: AgentAccess
) -> bool:
    """Put an agent's rules in force, unless somebody else sees to it.

    Since the list was made it may have been destroyed, and its address be another's by now: so
    it is held, and looked at once more.
    """
    owner = access.owner
    if tools.records.is_held(owner):
        return False
    with tools.records.held(owner, connection.deadline):
        seen = own_container(connection, owner)
        if seen is None or seen.addresses.get(networks.NAME) != access.address:
            return False
        tools.isolation.let(network.bridge, network.network, access, connection.deadline)
    return True


def remove_left_fillers(connection: Connection, installation_id: str) -> int:
    """Remove containers that packed the agent and were left behind; how many."""
    before = datetime.now(UTC) - timedelta(seconds=FILLER_SECONDS)
    found = containers.listed(connection, installation=installation_id)
    left = [
        each
        for each in found
        if each.marks.get(PURPOSE) == runtime_volume.FILLING and each.created_at < before
    ]
    for each in left:
        containers.remove(connection, each.id)
    return len(left)


def remove_ended(connection: Connection, installation_id: str) -> Counter[str]:
    """Remove agents' containers that do not run; how many, by scaler.

    What runs is left alone: without the rows nobody knows whose job it has.
    """
    removed: Counter[str] = Counter()
    for each in containers.listed(connection, installation=installation_id):
        owner = owner_in(each.marks)
        if owner is None or each.is_running:
            continue
        containers.remove(connection, each.id)
        removed[each.marks.get(SCALER, "")] += 1
    return removed
