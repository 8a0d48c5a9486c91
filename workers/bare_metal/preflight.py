"""The look at a machine before it is trusted with work: everything that may be missing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kici_scaler.domain.scalers import BackendType, Cluster, Scaler
from workers.bare_metal.backend import open_remote
from workers.contract import BackendContext, Deadline, Finding, Severity
from workers.errors import BackendError
from workers.fleet.health import MOST_SKEW_SECONDS

LOOK_SECONDS = 60.0
"""What one machine may take, the agent's upload included."""


@dataclass(frozen=True, slots=True)
class ListedMachine:
    """A machine of the scaler file with every scaler that lists it.

    `entry` is as the first of them has it: how it is reached.
    """

    name: str
    entry: Mapping[str, object]
    scalers: tuple[Scaler, ...]


def listed_machines(cluster: Cluster) -> tuple[ListedMachine, ...]:
    """The machines of all fleets, in the order of the file."""
    found: dict[str, ListedMachine] = {}
    for scaler in cluster.scalers:
        entries = scaler.options.get("machines")
        if scaler.type is not BackendType.BARE_METAL or not isinstance(entries, list | tuple):
            continue
        for machine, entry in zip(scaler.machines, entries, strict=True):
            known = found.get(machine.name) or ListedMachine(machine.name, entry, ())
            found[machine.name] = ListedMachine(known.name, known.entry, (*known.scalers, scaler))
    return tuple(found.values())


def examine(machine: ListedMachine, context: BackendContext) -> tuple[Finding, ...]:
    """What of a machine's needs is met: reached, let in, python, clock, disk, cgroups, agents.

    Puts the supervisor and the reference agent there, and starts nothing.
    """
    backend = open_remote(context, machine.entry)
    deadline = Deadline.after(LOOK_SECONDS)
    try:
        began = time.time()
        sign = backend.hello(deadline)
        reached = Finding(Severity.OK, "connection", f"reached as `{sign.hostname}`")
        skew = sign.clock - (began + time.time()) / 2
        return (reached, _clock(skew, began), *backend.check(machine.scalers, deadline))
    except BackendError as error:
        return (Finding(Severity.ERROR, "connection", str(error), error.hint),)
    finally:
        backend.close()


def _clock(skew: float, began: float) -> Finding:
    """A first look includes the connection's making, which blurs it by half its time."""
    blur = (time.time() - began) / 2
    if abs(skew) <= MOST_SKEW_SECONDS + blur:
        return Finding(Severity.OK, "clock", f"within {abs(skew) + blur:.1f} s of this machine's")
    ahead = "ahead of" if skew > 0 else "behind"
    return Finding(
        Severity.WARNING,
        "clock",
        f"{abs(skew):.0f} s {ahead} this machine's",
        "let both machines keep time (chrony, systemd-timesyncd)",
    )


def worst(findings: Sequence[Finding]) -> Severity:
    """The severity that decides."""
    order = (Severity.OK, Severity.WARNING, Severity.ERROR)
    return max((each.severity for each in findings), key=order.index, default=Severity.OK)
