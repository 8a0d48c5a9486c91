"""Limits by a transient scope of the user's systemd, where this user may make no cgroup itself.

`systemd-run --scope` moves itself into the scope and becomes the command, so the agent's process
is the one that was forked. The scope ends with its last process; one that the kernel killed for
memory stays as failed until it was asked about.
"""

from __future__ import annotations

import os
import subprocess

from .cgroups import Limits

SLICE = "kici-scaler"
SESSION = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""Variables by which the user's systemd is found."""

_PATIENCE_SECONDS = 5.0


def unit(agent_id: str) -> str:
    """The scope's name."""
    return f"kici-agent-{agent_id}.scope"


def is_usable() -> bool:
    """Whether this user's systemd makes scopes."""
    return _succeeds(["systemd-run", "--user", "--scope", "--quiet", "true"])


def wrap(agent_id: str, limits: Limits, command: list[str]) -> list[str]:
    """The command inside a scope of its own with those limits."""
    properties = []
    if limits.cpu_millis:
        properties.append(f"--property=CPUQuota={max(1, round(limits.cpu_millis / 10))}%")
    if limits.memory_bytes:
        properties.append(f"--property=MemoryMax={limits.memory_bytes}")
    if limits.processes:
        properties.append(f"--property=TasksMax={limits.processes}")
    made = ["systemd-run", "--user", "--scope", "--quiet", f"--slice={SLICE}"]
    return [*made, f"--unit={unit(agent_id)}", *properties, "--", *command]


def was_out_of_memory(agent_id: str) -> bool:
    """Whether the scope ended because something in it passed the memory limit; forgets it."""
    name = unit(agent_id)
    shown = _output(["systemctl", "--user", "show", name, "--property=Result", "--value"])
    if shown != "oom-kill":
        return False
    _succeeds(["systemctl", "--user", "reset-failed", name])
    return True


def _succeeds(command: list[str]) -> bool:
    return _output(command) is not None


def _output(command: list[str]) -> str | None:
    """What it printed; None when it failed, is not there or does not answer."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_SECONDS,
            env=dict(os.environ),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
