"""Starting a microVM under its monitor, once, and seeing it come up."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from workers.contract import Deadline
from workers.errors import NotDone, OutcomeUnknown, Permanent
from workers.firecracker import console, processes
from workers.firecracker.api import POLL_SECONDS, SOCKET_SECONDS, FirecrackerApi
from workers.firecracker.layout import Layout
from workers.firecracker.tools import cause_of, console_lines, log_tail

MONITOR = Path(__file__).with_name("monitor.py")

SETTLE_SECONDS = 0.5
"""After an early end, for late lines of the console; the reference's number."""


def start(layout: Layout, command: Sequence[str], deadline: Deadline) -> None:
    """Let a monitor start it; returns when it is certain that it was, or was not.

    Raises:
        NotDone: nothing was started.
        OutcomeUnknown: it is not certain in time.
    """
    try:
        monitor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(MONITOR), str(layout.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )
    except OSError as error:
        raise NotDone(f"the monitor cannot be started: {error}") from error
    assert monitor.stdin is not None, "it was asked for"
    with suppress(BrokenPipeError), monitor.stdin as orders:
        orders.write(json.dumps({"command": list(command)}).encode())
    if not processes.wait_until(
        lambda: layout.started.exists() or monitor.poll() is not None, deadline
    ):
        raise OutcomeUnknown(f"the monitor of {layout.agent_id} did not begin in time")
    if not layout.started.exists():
        raise NotDone(f"the monitor of {layout.agent_id} ended with {monitor.returncode}")


def await_api(layout: Layout, deadline: Deadline) -> FirecrackerApi:
    """Wait until the microVM's API answers.

    Raises:
        Permanent: it ended, or does not answer within five seconds.
        OutcomeUnknown: the call's own time is over.
    """
    api = FirecrackerApi(layout.socket)
    limit = Deadline.after(SOCKET_SECONDS)

    def is_decided() -> bool:
        return api.is_there(deadline) or _is_over(layout)

    processes.wait_until(is_decided, min(limit, deadline, key=lambda each: each.at), POLL_SECONDS)
    if api.is_there(deadline.within(1)):
        return api
    if _is_over(layout):
        raise failed_boot(layout)
    if deadline.has_passed:
        raise OutcomeUnknown(f"{layout.agent_id} did not come up in the time there was")
    raise Permanent(
        f"{layout.agent_id} did not come up: its API did not answer within "
        f"{SOCKET_SECONDS:.0f} s ({_class(layout)})",
        log_tail=log_tail(layout),
    )


def failed_boot(layout: Layout) -> Permanent:
    """What a microVM that ended early is told as."""
    processes.wait_until(layout.exit.exists, Deadline.after(SETTLE_SECONDS))
    cause = cause_of(layout, was_stopped=False)
    return Permanent(
        f"{layout.agent_id} did not boot ({_class(layout)}): {cause.detail}",
        log_tail=cause.log_tail,
    )


def _class(layout: Layout) -> str:
    return console.classify(console_lines(layout)).value


def _is_over(layout: Layout) -> bool:
    return layout.exit.exists() or not (_is_watched(layout) or processes.of(layout))


def _is_watched(layout: Layout) -> bool:
    """Whether its monitor lives, by the lock that it holds."""
    try:
        lock = os.open(layout.lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(lock)
