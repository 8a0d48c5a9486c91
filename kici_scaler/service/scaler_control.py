"""What an operator does to one scaler: pause it, let it take work again, empty it.

Crash table: each is one transaction; a killed process has done all of it or nothing.
"""

from __future__ import annotations

from sqlalchemy import Connection

from kici_scaler.errors import Conflict, NotFound
from kici_scaler.service import ending, handover, revisions
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import audit, retiring, scaler_states, section
from kici_scaler.store.engine import transaction
from kici_scaler.store.scaler_states import ScalerStanding

SECTION_SECONDS = 5.0


def pause(runtime: Runtime, scaler: str, *, actor: str, reason: str = "") -> None:
    """Give the scaler nothing new; what runs goes on, what waits goes elsewhere or waits.

    Raises:
        NotFound: the active configuration has no such scaler.
        Conflict: it has left the configuration.
    """
    _stand(runtime, scaler, ScalerStanding.PAUSED, actor=actor, reason=reason, empty=False)


def drain(runtime: Runtime, scaler: str, *, actor: str, reason: str = "") -> None:
    """Pause the scaler, give back what has not begun, and end what idles; jobs go on.

    Raises:
        NotFound: the active configuration has no such scaler.
        Conflict: it has left the configuration.
    """
    _stand(runtime, scaler, ScalerStanding.PAUSED, actor=actor, reason=reason, empty=True)


def resume(runtime: Runtime, scaler: str, *, actor: str) -> None:
    """Let the scaler take work again, and forget its failures.

    Raises:
        NotFound: the active configuration has no such scaler.
        Conflict: it has left the configuration.
    """
    _stand(runtime, scaler, ScalerStanding.ACTIVE, actor=actor, reason="", empty=False)
    runtime.hints.admit()
    runtime.hints.fill()


def _stand(
    runtime: Runtime,
    scaler: str,
    standing: ScalerStanding,
    *,
    actor: str,
    reason: str,
    empty: bool,
) -> None:
    effects: list[ending.Effects] = []
    with transaction(runtime.engine) as connection:
        section.enter(connection, bound_seconds=SECTION_SECONDS)
        _refuse_unknown(connection, scaler)
        # Spawns are locked before the states of their scalers, here as everywhere.
        if empty:
            needless = retiring.lock_needless(connection, [scaler])
            why = f"scaler `{scaler}` is being drained"
            effects = handover.let_go(connection, needless, why=why)
        scaler_states.stand(connection, scaler, standing, reason=reason)
        detail = {"standing": standing.value, "reason": reason, "emptied": empty}
        audit.record(connection, actor, "scaler", scaler, detail)
    for each in effects:
        ending.announce(runtime, each)


def _refuse_unknown(connection: Connection, scaler: str) -> None:
    if scaler in retiring.all_retiring(connection):
        raise Conflict(
            f"scaler `{scaler}` left the configuration; it takes nothing new already",
            hint="`kici-scaler scalers list` shows what is left of it",
        )
    if revisions.active(connection).cluster.scaler(scaler) is None:
        raise NotFound(
            f"the active configuration has no scaler `{scaler}`",
            hint="`kici-scaler scalers list` names them",
        )
