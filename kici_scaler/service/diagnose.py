"""The diagnosis of a running cluster, from rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection

from kici_scaler.domain.diagnosis import (
    WINDOW_SECONDS,
    Health,
    Row,
    ScalerFacts,
    diagnose,
    diagnose_networks,
)
from kici_scaler.domain.scalers import BackendType, Scaler
from kici_scaler.domain.windows import Windows
from kici_scaler.scalers_file.firecracker import NETWORK_OPTION
from kici_scaler.service import failover, revisions, watch
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.watch import Watch
from kici_scaler.store import (
    due,
    failovers,
    failures,
    machines,
    scaler_states,
    settings,
    spawns,
    static_agents,
)
from kici_scaler.store.engine import snapshot
from kici_scaler.store.failovers import Standing
from kici_scaler.store.machines import MachineRow

LONGEST_OVERDUE = 60.0
"""Due rows that nobody looked at for so long mean that no control worker sweeps."""


def diagnosis(runtime: Runtime) -> list[Row]:
    """Rows for scalers, the sweep, machines and quarantined spawns, in one snapshot.

    Raises:
        DatabaseUnreachable: nothing can be said.
    """
    with snapshot(runtime.engine) as connection:
        windows = settings.windows(connection)
        scalers = _scalers(connection)
        found = diagnose(scalers, failures.recent(connection, within_seconds=WINDOW_SECONDS))
        return [*found, *_housekeeping(connection, windows)]


def _scalers(connection: Connection) -> list[ScalerFacts]:
    counts: dict[str, int] = {}
    for (scaler, _), held in spawns.counts_by_state(connection).items():
        counts[scaler] = counts.get(scaler, 0) + held
    states = scaler_states.all_states(connection)
    known = [(scaler, False) for scaler in revisions.active(connection).cluster.scalers]
    known += [(scaler, True) for scaler in _retiring(connection, states)]
    return [
        ScalerFacts(
            name=scaler.name,
            backend_type=scaler.type.value,
            active_count=counts.get(scaler.name, 0),
            retiring=leaves,
            trouble=None if leaves else _trouble(states.get(scaler.name)),
        )
        for scaler, leaves in known
    ]


def _retiring(
    connection: Connection, states: Mapping[str, scaler_states.ScalerStateRow]
) -> Iterator[Scaler]:
    """Scalers that left the configuration and still have agents, as they were in it last."""
    for name, row in sorted(states.items()):
        if row.standing is scaler_states.ScalerStanding.RETIRING and row.revision_id is not None:
            scaler = revisions.by_id(connection, row.revision_id).cluster.scaler(name)
            if scaler is not None:
                yield scaler


def _trouble(row: scaler_states.ScalerStateRow | None) -> str | None:
    if row is None:
        return None
    if row.standing is not scaler_states.ScalerStanding.ACTIVE:
        return f"{row.standing}{': ' + row.reason if row.reason else ''}"
    if row.backoff_seconds > 0:
        return f"backs off for another {row.backoff_seconds:.0f} s"
    return None


def _housekeeping(connection: Connection, windows: Windows) -> Iterator[Row]:
    overdue = due.oldest_overdue_seconds(connection)
    health = Health.FAIL if overdue > LONGEST_OVERDUE else Health.PASS
    yield Row(
        "sweep", health, f"the longest overdue row waits {overdue:.0f} s", {"overdue": overdue}
    )
    quarantined = sum(
        held
        for (_, state), held in spawns.counts_by_state(connection).items()
        if state == "quarantined"
    )
    yield Row(
        "quarantined",
        Health.FAIL if quarantined else Health.PASS,
        f"{quarantined} agents could not be confirmed gone",
        {"count": quarantined},
    )
    yield _watch(watch.look(connection, windows))
    yield _database(failovers.standing(connection), failover.why_held(connection))
    stuck = static_agents.not_stopping(connection)
    if stuck:
        yield Row(
            "static-agents",
            Health.WARN,
            f"{', '.join(stuck[:5])} does not stop a job that is not its own any more, and is"
            " offered nothing: restart it",
            {"count": len(stuck)},
        )
    known = machines.all_machines(connection, fresh_seconds=windows.machine_stale_seconds)
    yield from _networks(connection, known)
    yield from map(_machine, known)


def _networks(connection: Connection, known: Sequence[MachineRow]) -> list[Row]:
    """How the bridges of guests do, by what the machines found when they last looked."""
    bridges: dict[str, list[str]] = {}
    for scaler in revisions.active(connection).cluster.scalers:
        network = scaler.options.get(NETWORK_OPTION)
        if scaler.type is BackendType.FIRECRACKER and isinstance(network, Mapping):
            bridges.setdefault(str(network["bridgeName"]), []).append(scaler.name)
    said = {
        row.machine_id: row.degraded
        for row in known
        if row.is_fresh and row.backend_type == BackendType.FIRECRACKER
    }
    return diagnose_networks(bridges, said)


def _machine(row: MachineRow) -> Row:
    """Whether a machine takes new agents, and of which scalers it cannot."""
    up = row.is_fresh and row.state == "up"
    cannot = "; ".join(f"cannot run `{name}`: {why}" for name, why in row.degraded.items())
    said = row.state if row.is_fresh else "its worker has not been heard of lately"
    return Row(
        f"machine:{row.machine_id}/{row.backend_type}",
        Health.PASS if up and not cannot else Health.WARN,
        f"{said}; {cannot}" if cannot else said,
        {
            "state": row.state,
            "lastHeartbeat": row.last_heartbeat.isoformat(),
            "degraded": dict(row.degraded),
        },
    )


def _watch(found: Watch) -> Row:
    """Whether anybody watches over agents; without that no deadline runs."""
    details = {"unwatchedSeconds": found.unwatched_seconds}
    if not found.why:
        return Row("watch", Health.PASS, "agents are watched over", details)
    health = Health.FAIL if found.is_alarming else Health.WARN
    message = (
        f"nobody has watched over agents for {found.unwatched_seconds:.0f} s, so every deadline"
        f" stands still; {found.why}"
    )
    return Row("watch", health, message, details)


def _database(found: Standing, why_held: Sequence[str]) -> Row:
    """Whether the rows can be believed: the server is the one it was."""
    details = {"identity": found.identity, "heldBack": found.held}
    if found.held:
        since = "" if found.held_since is None else f" since {found.held_since.isoformat()}"
        message = (
            f"the database failed over; admission and reclaim are held back{since}"
            f" ({'; '.join(why_held) or 'the next sweep lets them go on'}): look at the machines,"
            " then `kici-scaler resume`"
        )
        return Row("database", Health.FAIL, message, details)
    if found.identity is None:
        message = (
            "a failover would not be noticed: the role may not call pg_control_system() or"
            " pg_walfile_name()"
        )
        return Row("database", Health.WARN, message, details)
    return Row("database", Health.PASS, "the server is the one it was", details)
