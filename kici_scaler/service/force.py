"""A person's word that compute is gone, where no machine can be asked any more.

The only place where a row goes without a backend's confirmation; always audited.

Crash table: each is one transaction, with its audit row in it.
"""

from __future__ import annotations

from kici_scaler.domain.spawn import DestroyReason
from kici_scaler.errors import Conflict, NotFound
from kici_scaler.service import ending
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import audit, forced, machines, settings
from kici_scaler.store.engine import transaction


def forget_agent(runtime: Runtime, agent_id: str, *, actor: str) -> None:
    """Drop a spawn that is being destroyed or quarantined: its compute is said to be gone.

    An agent in any other state is first sent to its end; what holds a lease stays.

    Raises:
        NotFound: no live spawn of that id.
        Conflict: a worker acts on it right now; try again in a moment.
    """
    why = f"said to be gone by an operator ({actor})"
    with transaction(runtime.engine) as connection:
        effects = ending.end(
            connection,
            [agent_id],
            states=ending.ANY_LIVE,
            reason=DestroyReason.SHUTDOWN,
            why=why,
            windows=settings.windows(connection),
        )
        gone = forced.forget(connection, agent_ids=[agent_id])
        if not gone and forced.exists(connection, agent_id):
            raise Conflict(
                f"a worker acts on agent {agent_id} right now",
                hint="try again in a moment; its lease ends by itself",
            )
        if not gone and not effects.ended:
            raise NotFound(f"no live agent {agent_id!r} is known")
        audit.record(connection, actor, "agent.forget", agent_id, {"forced": True})
    ending.announce(runtime, effects)
    runtime.hints.admit(soon=True)


def forget_machine(runtime: Runtime, machine_id: str, *, actor: str) -> int:
    """Drop a machine that is gone with all its compute; returns how many spawns went.

    Their jobs wait again or fail as for any other end.

    Raises:
        NotFound: no machine of that id is known.
        Conflict: its worker was heard of lately, so it is not gone.
    """
    with transaction(runtime.engine) as connection:
        windows = settings.windows(connection)
        rows = [
            row
            for row in machines.all_machines(
                connection, fresh_seconds=windows.machine_stale_seconds
            )
            if row.machine_id == machine_id
        ]
        if not rows:
            raise NotFound(f"no machine `{machine_id}` is known")
        if any(row.is_fresh for row in rows):
            raise Conflict(
                f"machine `{machine_id}` was heard of lately, so it is not gone",
                hint="stop its worker first, or use `kici-scaler machines drain`",
            )
        agents = forced.on_machine(connection, machine_id)
        effects = ending.end(
            connection,
            agents,
            states=ending.ANY_LIVE,
            reason=DestroyReason.SHUTDOWN,
            why=f"machine `{machine_id}` is said to be gone by an operator ({actor})",
            windows=windows,
        )
        gone = forced.forget(connection, agent_ids=agents)
        forced.drop_machine(connection, machine_id)
        audit.record(connection, actor, "machine.forget", machine_id, {"agents": agents})
    ending.announce(runtime, effects)
    runtime.hints.admit(soon=True)
    return len(gone) + sum(each not in gone for each in effects.ended)
