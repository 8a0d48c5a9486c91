"""The machines a worker reaches by SSH: claimed, kept fresh while they answer, let go.

Crash table: each is one transaction. The claims of a worker that was killed run out, and
another worker takes its machines over; what it was doing there is found by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from kici_scaler.domain.scalers import BackendType, Scaler
from kici_scaler.service import revisions
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import fleet, retiring, settings, starts
from kici_scaler.store.engine import transaction
from kici_scaler.store.fleet import Driven, Listed
from kici_scaler.store.machines import Announcement

CLAIM_SECONDS = 30.0
"""How long a claim holds; several of a worker's heartbeats, so that a slow one loses nothing."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What one worker drives, and for which scalers each machine serves."""

    driven: tuple[Driven, ...] = ()
    serves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    taken: tuple[str, ...] = ()
    """Names in the configuration that a worker's own host has already."""


def claim(runtime: Runtime, serves: Collection[str] | None) -> Fleet:
    """Claim, renew, and say what this worker drives from now on.

    Args:
        serves: the scalers this worker is limited to; a machine that one of them lists is
            driven for all that list it. None is every scaler.
    """
    with transaction(runtime.engine) as connection:
        scalers = _scalers(connection)
        listed: dict[str, Listed] = {}
        for scaler in scalers:
            for each in _listed(scaler):
                listed.setdefault(each.machine_id, each)
        mine = {
            each.name
            for scaler in scalers
            if serves is None or scaler.name in serves
            for each in scaler.machines
        }
        driven = fleet.claim(
            connection,
            driver=runtime.owner,
            listed=[each for name, each in listed.items() if name in mine],
            named=listed,
            lease_seconds=CLAIM_SECONDS,
        )
        lacking = mine - {each.machine_id for each in driven}
        taken = fleet.taken_names(connection, lacking) if lacking else []
        return Fleet(tuple(driven), _serving(connection), tuple(taken))


def _scalers(connection: Connection) -> list[Scaler]:
    """Every scaler with a fleet: those in force first, then those whose agents still live."""
    now = revisions.active(connection).cluster.scalers
    leaving = [
        revisions.by_id(connection, revision_id).cluster.scaler(name)
        for name, revision_id in retiring.all_retiring(connection).items()
    ]
    return [each for each in (*now, *leaving) if each is not None and each.machines]


def _listed(scaler: Scaler) -> list[Listed]:
    entries = scaler.options.get("machines")
    written = entries if isinstance(entries, list | tuple) else ()
    return [
        Listed(machine.name, str(entry["address"]), _plain(entry))
        for machine, entry in zip(scaler.machines, written, strict=True)
    ]


def _plain(entry: Mapping[str, object]) -> dict[str, object]:
    """Frozen mappings as JSON takes them."""
    return {
        key: _plain(value) if isinstance(value, Mapping) else value
        for key, value in entry.items()
        if not isinstance(value, list | tuple)
    }


def _serving(connection: Connection) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for scaler in revisions.active(connection).cluster.scalers:
        if scaler.type is BackendType.BARE_METAL:
            for machine in scaler.machines:
                found[machine.name] = (*found.get(machine.name, ()), scaler.name)
    return found


def announce(runtime: Runtime, machine: Announcement) -> bool:
    """Say what a machine is that answers, and wake whoever waited for one.

    False when another worker drives it by now.
    """
    with transaction(runtime.engine) as connection:
        is_mine = fleet.announce(connection, machine, driver=runtime.owner)
    if is_mine:
        runtime.hints.admit(soon=True)
        runtime.hints.fill(soon=True)
    return is_mine


def beat(
    runtime: Runtime,
    *,
    answering: Collection[str],
    silent: Mapping[str, str],
    tokens: Collection[int],
) -> tuple[str, ...]:
    """Keep machines fresh that answer and leases of steps that run; returns who just fell silent.

    Args:
        silent: why a machine cannot be reached, by name.
    """
    with transaction(runtime.engine) as connection:
        if answering:
            fleet.heartbeat(connection, driver=runtime.owner, machine_ids=answering)
        news = [
            name
            for name, why in sorted(silent.items())
            if fleet.is_out_of_reach(connection, name, driver=runtime.owner, why=why)
        ]
        if tokens:
            windows = settings.windows(connection)
            starts.extend(
                connection, holder=runtime.owner, tokens=tokens, lease_seconds=windows.lease_seconds
            )
    return tuple(news)


def let_go(runtime: Runtime, machine_ids: Collection[str]) -> None:
    """Leave machines to other workers."""
    with transaction(runtime.engine) as connection:
        fleet.let_go(connection, driver=runtime.owner, machine_ids=machine_ids)


def forget_empty(runtime: Runtime, machine_id: str) -> bool:
    """Drop a machine that no configuration lists and that holds nothing; whether it went."""
    with transaction(runtime.engine) as connection:
        return fleet.drop_if_empty(connection, machine_id, driver=runtime.owner)
