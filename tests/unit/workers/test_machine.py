"""What a machine is and how much it holds."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from kici_scaler.domain.scalers import Architecture, OperatingSystem, Platform
from workers import machine
from workers.machine import MachineKind, boot_id, local_machine, platform_of


def test_this_host_is_described_as_it_is() -> None:
    here = local_machine("rack-7")

    assert (here.id, here.kind) == ("rack-7", MachineKind.LOCAL)
    assert here.cpu_millis == len(os.sched_getaffinity(0)) * 1000
    assert here.memory_bytes == psutil.virtual_memory().total
    assert here.boot_id == boot_id() != ""


@pytest.mark.parametrize(
    ("system", "processor", "expected"),
    [
        ("linux", "x86_64", Platform(OperatingSystem.LINUX, Architecture.X64)),
        ("linux", "aarch64", Platform(OperatingSystem.LINUX, Architecture.ARM64)),
        ("darwin", "arm64", Platform(OperatingSystem.MACOS, Architecture.ARM64)),
        ("win32", "AMD64", Platform(OperatingSystem.WINDOWS, Architecture.X64)),
        ("linux", "riscv64", None),
        ("freebsd14", "amd64", None),
    ],
)
def test_a_platform_is_known_or_none(
    system: str, processor: str, expected: Platform | None
) -> None:
    assert platform_of(system, processor) == expected


def test_a_host_without_a_kernels_boot_id_has_one_for_all_its_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "_BOOT_ID", Path("/nowhere"))

    assert boot_id() == boot_id() == f"boot-{int(psutil.boot_time())}"
