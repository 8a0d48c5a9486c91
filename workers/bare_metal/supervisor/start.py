"""`start`: make an agent's folder and its monitor, or take over what an earlier start made."""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path
from typing import Any

from . import cgroups, files, monitor
from .fence import Fence
from .folder import Folder, Phase, Root
from .order import Order
from .refusal import Refused

TAIL_LINES = 50


def start(root: Root, content: dict[str, Any], give_up_at: float) -> dict[str, Any]:
    """Answer with the agent's process, made now or found from an earlier start.

    Raises:
        Refused: `not-owner`; `ended`, with the cause, when it ran and is over; `permanent`
            when it cannot be run; `not-done`; `unknown`.
    """
    order = Order(content)
    with root.lock(order.agent_id, give_up_at):
        fence, folder = root.fence(order.agent_id), root.folder(order.agent_id)
        fence.require(order.lease_token, to_start=True)
        _require_ours(folder, order)
        phase = folder.settled(give_up_at)
        if phase in (Phase.RUNNING, Phase.ENDED):
            fence.raise_to(order.lease_token)
            folder.claim(order.lease_token)
        if phase is Phase.RUNNING:
            return {**_answer(folder), "taken_over": True, "warnings": []}
        if phase is Phase.ENDED:
            raise Refused("ended", "it has ended", cause=folder.cause(TAIL_LINES, give_up_at))
        return _create(folder, fence, order, give_up_at)


def _require_ours(folder: Folder, order: Order) -> None:
    record = folder.record
    if record is not None and record["installation_id"] != order.installation_id:
        raise Refused("permanent", f"{order.agent_id} is another installation's")


def _answer(folder: Folder) -> dict[str, Any]:
    process = folder.process
    return {"folder": str(folder.path), "process": process.as_json() if process else None}


def _create(folder: Folder, fence: Fence, order: Order, give_up_at: float) -> dict[str, Any]:
    # A container's limits are its runtime's business.
    planned = [] if order.box else _plan_cgroups(folder, order)
    if order.box is not None:
        order.box.fetch(folder.root.pulls / order.agent_id, give_up_at)
    elif order.limits.any and not planned:
        order.use_scope()
    try:
        fence.raise_to(order.lease_token)
        folder.remove()
        _lay_out(folder, order, planned)
        warnings = _make_cgroups(folder, order, planned)
        words = _fork_monitor(folder, order, give_up_at)
    except OSError as error:
        folder.remove()
        raise Refused("not-done", f"{folder.path} could not be made: {error}") from error
    outcome = _hear(words, folder, order, give_up_at)
    if "failed" in outcome:
        _await_no_monitor(folder, give_up_at)
        folder.remove()
        raise Refused(str(outcome["code"]), str(outcome["failed"]))
    # One that ended without an error may have served its job already: that is no failure here.
    if "ended" in outcome and outcome["ended"]["exit_code"] != 0:
        raise Refused("ended", "it ended at once", cause=folder.cause(TAIL_LINES, give_up_at))
    return {**_answer(folder), "taken_over": False, "warnings": warnings}


def _plan_cgroups(folder: Folder, order: Order) -> list[str]:
    name = f"{order.installation_id}.{folder.agent_id}"
    return [str(each) for each in cgroups.plan(name, order.limits)] if order.limits.any else []


def _lay_out(folder: Folder, order: Order, planned: list[str]) -> None:
    """Build the folder out of sight, so that what is seen always says whose it is."""
    root = folder.root
    root.drop_draft(folder.agent_id)
    draft = Folder(root, folder.agent_id, files.make_private(root.making) / folder.agent_id)
    for each in (draft.path, draft.state, draft.work):
        each.mkdir(mode=0o700)
    if order.agent_token:
        files.write_secret(order.token_file(draft), order.agent_token)
    draft.record = order.record(planned)
    files.make_private(root.agents)
    draft.path.rename(folder.path)
    files.sync_folder(root.agents)


def _make_cgroups(folder: Folder, order: Order, planned: list[str]) -> list[str]:
    """Warnings: why limits that were asked for are not enforced."""
    if order.box is not None or not order.limits.any:
        return []
    if not planned:
        return _without_cgroups(order, "this machine has no usable cgroups")
    record = folder.record or {}
    try:
        cgroups.make([Path(each) for each in planned], order.limits)
    except OSError as error:
        cgroups.remove(planned)
        order.use_scope()
        folder.record = {**record, "cgroups": [], "scope": order.in_scope}
        return _without_cgroups(order, str(error))
    return []


def _without_cgroups(order: Order, why: str) -> list[str]:
    return [] if order.in_scope else [f"limits are not enforced: {why}"]


def _fork_monitor(folder: Folder, order: Order, give_up_at: float) -> _Words:
    reader, writer = os.pipe()
    held = files.Lock(folder.monitor_lock, give_up_at).take()
    forked = os.fork()
    if forked == 0:
        monitor.detach(folder, order, held, writer)
    os.close(writer)
    os.close(held)
    os.waitpid(forked, 0)
    return _Words(reader)


def _hear(words: _Words, folder: Folder, order: Order, give_up_at: float) -> dict[str, Any]:
    """The monitor's word, or what it adds a little later: that the agent ended at once."""
    first = words.next(give_up_at)
    if first is None:
        raise Refused("unknown", f"the monitor of {folder.agent_id} has not answered")
    if "started" not in first:
        return first
    return words.next(min(give_up_at, time.monotonic() + order.watch_seconds)) or first


class _Words:
    """What the monitor says: one JSON object a line."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._held = b""

    def next(self, give_up_at: float) -> dict[str, Any] | None:
        """The next object; None when none came by then, or the monitor is gone."""
        while b"\n" not in self._held:
            left = max(0.0, give_up_at - time.monotonic())
            if not select.select([self._reader], [], [], left)[0]:
                return None
            piece = os.read(self._reader, 65536)
            if not piece:
                return None
            self._held += piece
        line, _, self._held = self._held.partition(b"\n")
        word: dict[str, Any] = json.loads(line)
        return word


def _await_no_monitor(folder: Folder, give_up_at: float) -> None:
    while folder.has_monitor and time.monotonic() < give_up_at:
        time.sleep(0.01)
