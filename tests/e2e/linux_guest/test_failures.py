"""Guests that do not come up, for real reasons: the right class, a clear message, nothing left."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.harness import soon
from tests.e2e.linux_guest.whole import LONG
from tests.integration.workers.firecracker.test_failures import left
from tests.support.linux_guest import LinuxGuestHarness
from tests.support.waiting import eventually
from workers.contract import ExitCause, ExitKind
from workers.firecracker.backend import FirecrackerBackend

_CRASH = "#!/bin/sh\n/bin/mount -t proc proc /proc\necho c > /proc/sysrq-trigger\n"


def _change(rootfs: Path, *requests: str) -> None:
    """Change a file system without mounting it."""
    for each in requests:
        subprocess.run(["debugfs", "-w", "-R", each, str(rootfs)], check=True, capture_output=True)


def _corrupt(harness: LinuxGuestHarness) -> None:
    with harness.rootfs.open("r+b") as file:
        file.write(bytes(1 << 16))


def _without_init(harness: LinuxGuestHarness) -> None:
    _change(harness.rootfs, "rm /init")


def _without_agent(harness: LinuxGuestHarness) -> None:
    _change(harness.rootfs, "rm /usr/local/bin/kici-agent")


def _crashing(harness: LinuxGuestHarness) -> None:
    script = harness.folder / "init"
    script.write_text(_CRASH)
    _change(
        harness.rootfs, "rm /init", f"write {script} /init", "set_inode_field /init mode 0100755"
    )


@pytest.mark.parametrize(
    ("spoil", "failure", "shown"),
    [
        (_corrupt, "kernel-panic", "/dev/vda"),
        (_without_init, "kernel-panic", "/init"),
        (_crashing, "kernel-panic", "sysrq triggered crash"),
        (_without_agent, "init-failure", "kici-agent"),
    ],
)
def test_a_guest_that_does_not_come_up_says_why_and_leaves_nothing(
    harness: LinuxGuestHarness,
    backend: FirecrackerBackend,
    agent_id: str,
    spoil: Callable[[LinuxGuestHarness], None],
    failure: str,
    shown: str,
) -> None:
    spoil(harness)
    backend.spawn(harness.order(agent_id), soon())

    cause = _end_of(harness, backend, agent_id)

    assert (cause.kind, cause.exit_code) == (ExitKind.EXITED, 0), cause
    assert cause.detail.startswith(f"{failure}: "), cause
    assert any(shown in line for line in (cause.detail, *cause.log_tail)), cause
    backend.destroy(harness.ref(agent_id, 2), soon())
    assert left(harness, agent_id) == []


def _end_of(harness: LinuxGuestHarness, backend: FirecrackerBackend, agent_id: str) -> ExitCause:
    """How the guest ends, once it has."""
    eventually(harness.layout(agent_id).exit.exists, LONG)
    assert backend.attend(soon()) == [agent_id]
    cause = backend.exit_cause(harness.ref(agent_id, 1), soon())
    assert cause is not None
    return cause
