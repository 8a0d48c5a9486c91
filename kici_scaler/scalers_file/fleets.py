"""Rules about machines that several scalers list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kici_scaler.scalers_file.explain_errors import Finding
from kici_scaler.scalers_file.problems import Path, shown

_OF_A_SCALER = ("labels", "maxAgents", "capacity")
"""What each scaler says for itself; how a machine is reached is the same for all."""


def fleet_mistakes(document: dict[str, Any], place: Callable[[Path], str]) -> Iterator[Finding]:
    """Machines of one name that are reached in different ways: which of them would it be?"""
    first: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path, machine in _machines(document):
        name = machine.get("name") or machine.get("address")
        if not isinstance(name, str):
            continue
        where, known = first.setdefault(name, (path, machine))
        if where[1] == path[1]:
            continue  # twice in one scaler is a mistake of its own, told there
        for key in sorted({*known, *machine} - {*_OF_A_SCALER, "name"}):
            if known.get(key) != machine.get(key):
                yield Finding(
                    (*path, key) if key in machine else path,
                    f"differs from `{key}` of the machine of the same name at {place(where)}",
                    shown(machine[key]) if machine.get(key) is not None else None,
                    "Reach it in the same way, or give one of them another `name`.",
                )


def _machines(document: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    scalers = document.get("scalers")
    for index, scaler in enumerate(scalers if isinstance(scalers, list) else ()):
        machines = scaler.get("machines") if isinstance(scaler, dict) else None
        for number, machine in enumerate(machines if isinstance(machines, list) else ()):
            if isinstance(machine, dict) and scaler.get("type") == "bare-metal":
                yield ("scalers", index, "machines", number), machine
