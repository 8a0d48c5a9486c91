"""What the agent says of the machine it is on."""

from __future__ import annotations

import os
import platform
import socket

from kici_scaler.agent import AGENT_VERSION
from kici_scaler.agent.messages import Facts

_SYSTEMS = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}
_ALSO = {"macos": ("darwin",), "windows": ("win32",), "x64": ("amd64",)}
"""Names that jobs use for the same thing; the reference's aliases."""
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def self_reported(known: Facts) -> tuple[str, ...]:
    """The labels an agent may add to those it was given: its system, CPU and host."""
    return (
        *(f"kici:os:{name}" for name in (known.os, *_ALSO.get(known.os, ()))),
        *(f"kici:arch:{name}" for name in (known.arch, *_ALSO.get(known.arch, ()))),
        f"kici:host:{known.hostname.lower()}",
    )


def facts() -> Facts:
    """This process and machine; names the domain has no word for stay as they are."""
    system, machine = platform.system(), platform.machine().lower()
    return Facts(
        os=_SYSTEMS.get(system, system.lower()),
        arch=_MACHINES.get(machine, machine),
        hostname=socket.gethostname(),
        pid=os.getpid(),
        version=AGENT_VERSION,
    )
