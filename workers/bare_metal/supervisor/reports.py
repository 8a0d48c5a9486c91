"""`list`, `status`, `logs` and `exit-cause`: what is there, told without changing it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from . import files, processes
from .folder import AGENT_ID, Folder, Phase, Root
from .processes import Identity
from .refusal import Refused

TOMBSTONE_SECONDS = 86_400.0
"""How long a destroyed name refuses late starts; far beyond any lease."""

_MARK = "KICI_INSTALLATION_ID"


def list_agents(root: Root, content: dict[str, Any], _give_up_at: float) -> dict[str, Any]:
    """All of one installation, and names of folders that could not be read."""
    _sweep(root)
    wanted = str(content["installation_id"])
    agents, unreadable = [], []
    for folder in root.folders():
        try:
            entry = _entry(folder)
        except Refused as refusal:
            unreadable.append(f"{folder.agent_id}: {refusal.message}")
            continue
        if entry is not None and entry["installation_id"] == wanted:
            agents.append(entry)
    known = {each["agent_id"] for each in agents}
    agents += [each for each in _strays(root, wanted) if each["agent_id"] not in known]
    return {"agents": agents, "unreadable": unreadable}


def _entry(folder: Folder) -> dict[str, Any] | None:
    record = folder.record
    phase = folder.phase()
    if record is None or phase is Phase.ABSENT:
        return None
    process = folder.process
    return {
        **record,
        "folder": str(folder.path),
        "phase": phase.value,
        "running": phase in (Phase.RUNNING, Phase.STARTING),
        "process": process.as_json() if process else None,
    }


def _strays(root: Root, installation_id: str) -> list[dict[str, Any]]:
    """Agents that run and of which nothing is kept: someone removed their folder."""
    seen = processes.table()
    found: dict[str, dict[str, Any]] = {}
    for identity, environment in processes.marked(_MARK, installation_id, seen).items():
        agent_id = environment.get("KICI_AGENT_ID", "")
        if agent_id in found or not AGENT_ID.fullmatch(agent_id):
            continue
        marks = root.folder(agent_id).marks(installation_id)
        if all(environment.get(key) == value for key, value in marks.items()):
            found[agent_id] = _stray(agent_id, installation_id, identity)
    return list(found.values())


def _stray(agent_id: str, installation_id: str, identity: Identity) -> dict[str, Any]:
    return {
        "agent_id": agent_id,
        "installation_id": installation_id,
        "scaler": "",
        "job_id": None,
        "run_id": None,
        "token": 0,
        "created_at": processes.started_at(identity),
        "folder": "",
        "phase": Phase.RUNNING.value,
        "running": True,
        "process": identity.as_json(),
    }


def _sweep(root: Root) -> None:
    """Remove what killed calls left half removed or half made, and tombstones past their age."""
    for half_gone in root.attic.glob("*"):
        files.remove_tree(half_gone)
    for draft in root.making.glob("*"):
        root.if_unused(draft.name, root.drop_draft)
    for pull in root.pulls.glob("*"):
        root.if_unused(pull.name, root.drop_pull)
    oldest = time.time() - TOMBSTONE_SECONDS
    for fence in root.names.glob("*.json"):
        if _written_at(fence) < oldest:
            root.if_unused(fence.stem, root.drop_tombstone)


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def status(root: Root, content: dict[str, Any], _give_up_at: float) -> dict[str, Any]:
    """The entry of one agent; None when nothing is kept of it."""
    folder = _ours(root, content)
    return {"agent": _entry(folder) if folder else None}


def logs(root: Root, content: dict[str, Any], _give_up_at: float) -> dict[str, Any]:
    """The last lines it printed."""
    folder = _ours(root, content)
    return {"lines": folder.tail(int(content["last_lines"])) if folder else []}


def exit_cause(root: Root, content: dict[str, Any], give_up_at: float) -> dict[str, Any]:
    """How it ended; None while it runs."""
    folder = _ours(root, content)
    phase = folder.settled(give_up_at) if folder else Phase.ABSENT
    if folder is None or phase is Phase.ABSENT:
        return {"cause": {"kind": "absent", "detail": "nothing of that name is here"}}
    if phase is Phase.RUNNING:
        return {"cause": None}
    if phase is Phase.HALF_MADE:
        return {"cause": {"kind": "start-failed", "detail": "its start was cut short"}}
    return {"cause": folder.cause(int(content["last_lines"]), give_up_at)}


def _ours(root: Root, content: dict[str, Any]) -> Folder | None:
    agent_id = str(content["agent_id"])
    folder = root.folder(agent_id) if AGENT_ID.fullmatch(agent_id) else None
    record = folder.record if folder else None
    if record is None or record["installation_id"] != content["installation_id"]:
        return None
    return folder
