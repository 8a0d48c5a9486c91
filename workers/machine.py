"""Which machine this worker drives: its identity, what it is and how much it holds."""

from __future__ import annotations

import os
import platform as python_platform
import socket
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from kici_scaler.domain.scalers import Architecture, OperatingSystem, Platform

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_SYSTEMS = {
    "linux": OperatingSystem.LINUX,
    "darwin": OperatingSystem.MACOS,
    "win32": OperatingSystem.WINDOWS,
}
_ARCHITECTURES = {
    "x86_64": Architecture.X64,
    "amd64": Architecture.X64,
    "aarch64": Architecture.ARM64,
    "arm64": Architecture.ARM64,
}


class MachineKind(StrEnum):
    """How a worker reaches the place where compute lives."""

    LOCAL = "local"
    """The worker's own host."""
    SSH = "ssh"
    """Another host, over SSH."""
    RUNTIME = "runtime"
    """A remote container runtime."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One place where compute lives.

    `boot_id` changes with each boot, so that a record of an earlier boot is known for what
    it is. `platform` is None for a system or architecture no label stands for.
    """

    id: str
    kind: MachineKind
    hostname: str
    boot_id: str
    platform: Platform | None
    cpu_millis: int
    """CPUs this worker may use, in thousandths."""
    memory_bytes: int


def local_machine(machine_id: str) -> Machine:
    """The host this process runs on, under the id its settings give it."""
    return Machine(
        id=machine_id,
        kind=MachineKind.LOCAL,
        hostname=socket.gethostname(),
        boot_id=boot_id(),
        platform=platform_of(sys.platform, python_platform.machine()),
        cpu_millis=_usable_cpus() * 1000,
        memory_bytes=psutil.virtual_memory().total,
    )


def platform_of(system: str, machine: str) -> Platform | None:
    """The platform of a Python `sys.platform` and `platform.machine()`, where one is known."""
    os_name, arch = _SYSTEMS.get(system), _ARCHITECTURES.get(machine.lower())
    return Platform(os_name, arch) if os_name and arch else None


def boot_id() -> str:
    """What tells this boot of the host from every other one.

    The kernel's own id on Linux; elsewhere the moment of boot in whole seconds, which every
    process of the host agrees on.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except FileNotFoundError:
        return f"boot-{int(psutil.boot_time())}"


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
