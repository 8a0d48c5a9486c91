"""The firecracker backend with whole Linux guests; `make e2e-firecracker` brings what they need.

A guest is one virtual CPU of QEMU without KVM: it takes some ten seconds to boot, more where the
machine is busy. There is one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.harness import soon
from tests.e2e.linux_guest.whole import Whole, open_whole
from tests.support.firecracker import network_with_exit
from tests.support.linux_guest import FOLDER, LinuxGuestHarness, why_not
from workers.firecracker import starter
from workers.firecracker.backend import FirecrackerBackend


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where no such guest can be started, it is said so."""
    here, reason = Path(__file__).parent, why_not()
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_report_header() -> str:
    """Whose guests these are."""
    return f"Linux guests: {f'QEMU with {FOLDER}' if FOLDER else 'none'}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """One installation whose agents are Linux guests."""
    with open_whole(tmp_path_factory.mktemp("whole")) as opened:
        yield opened


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LinuxGuestHarness]:
    """The backend alone, with guests that may be spoilt."""
    # What plays Firecracker is an interpreter that has to start first.
    monkeypatch.setattr(starter, "SOCKET_SECONDS", 60.0)
    with network_with_exit():
        made = LinuxGuestHarness(tmp_path)
        made.open().prepare([made.scaler()], soon())
        yield made
        made.close()


@pytest.fixture
def backend(harness: LinuxGuestHarness) -> FirecrackerBackend:
    """The backend as one worker has it."""
    return harness.open()


@pytest.fixture
def agent_id(harness: LinuxGuestHarness) -> str:
    """An agent that does not exist yet."""
    return harness.new_agent_id()
