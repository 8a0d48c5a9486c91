"""Limits by the user's systemd; programs of the test's own stand for its commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.bare_metal.supervisor import scopes
from workers.bare_metal.supervisor.cgroups import Limits
from workers.bare_metal.supervisor.order import Order

ORDER = {
    "agent_id": "scaler-bare-metal-1",
    "installation_id": "here",
    "token": 1,
    "command": ["/opt/agent", "--once"],
    "environment": {},
    "limits": {"memory_bytes": 64 << 20, "cpu_millis": 750, "processes": 100},
}


class _Systemd:
    """Programs that note how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.called = folder / "called"

    def answers(self, program: str, *, code: int = 0, text: str = "") -> None:
        """Put a program there."""
        path = self.folder / program
        path.write_text(
            f'#!/bin/sh\necho "{program} $*" >> {self.called}\necho {text}\nexit {code}\n'
        )
        path.chmod(0o755)


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Systemd:
    """No programs but those that the test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return _Systemd(tmp_path)


def test_a_host_without_it_has_no_scopes(systemd: _Systemd) -> None:
    assert not scopes.is_usable()
    assert not scopes.was_out_of_memory("a")


def test_one_that_refuses_is_of_no_use(systemd: _Systemd) -> None:
    systemd.answers("systemd-run", code=1)
    order = Order(ORDER)

    order.use_scope()

    assert not order.in_scope
    assert order.command == ["/opt/agent", "--once"]


def test_the_agents_command_is_run_in_a_scope_with_its_limits(
    systemd: _Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd.answers("systemd-run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    order = Order(ORDER)

    order.use_scope()
    order.use_scope()

    assert order.command == [
        "systemd-run",
        "--user",
        "--scope",
        "--quiet",
        "--slice=kici-scaler",
        "--unit=kici-agent-scaler-bare-metal-1.scope",
        "--property=CPUQuota=75%",
        f"--property=MemoryMax={64 << 20}",
        "--property=TasksMax=100",
        "--",
        "/opt/agent",
        "--once",
    ]
    assert order.record([])["scope"]


def test_a_side_without_a_limit_has_no_property() -> None:
    command = scopes.wrap("a", Limits({"cpu_millis": 1}), ["x"])

    assert "--property=CPUQuota=1%" in command
    assert not [each for each in command if "MemoryMax" in each or "TasksMax" in each]


@pytest.mark.parametrize(("result", "expected"), [("oom-kill", True), ("success", False)])
def test_the_scope_says_whether_memory_ran_out(
    systemd: _Systemd, result: str, expected: bool
) -> None:
    systemd.answers("systemctl", text=result)

    assert scopes.was_out_of_memory("a") is expected
    forgets = "--user reset-failed kici-agent-a.scope" in systemd.called.read_text()
    assert forgets is expected
