"""What the agent says of the machine it is on."""

from __future__ import annotations

import os
import platform
import socket

from kici_scaler.agent import AGENT_VERSION
from kici_scaler.agent.messages import Facts

_SYSTEMS = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


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
