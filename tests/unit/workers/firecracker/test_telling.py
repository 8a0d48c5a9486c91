"""What a guest is told, and what its console tells."""

from __future__ import annotations

import json

import pytest

from tests.unit.workers.firecracker.orders import AGENT, order
from workers.firecracker.console import (
    BootFailure,
    classify,
    exit_code,
    is_alarming,
    lines_of,
    printed,
    told,
)
from workers.firecracker.mmds import (
    BUDGET_BYTES,
    CLEARED,
    document,
    environment_of,
    within_budget,
)

GATEWAY = "10.0.0.1"
URL = "ws://10.0.0.1:4000/v1/agents"


def test_a_guest_is_told_all_that_its_agent_needs() -> None:
    said = document(order({"backpressureMode": "drop"}), GATEWAY, URL, {"A": "1"})

    assert said == {
        "latest": {
            "meta-data": {
                "kici-orchestrator-url": URL,
                "kici-agent-id": AGENT,
                "kici-labels": "linux,vm",
                "kici-scaler-managed": "1",
                "kici-gateway-ip": GATEWAY,
                "kici-agent-token": "the-secret",
                "kici-backpressure-mode": "drop",
                "kici-env": {"A": "1"},
            }
        }
    }


def test_what_there_is_not_is_left_out() -> None:
    said = json.dumps(document(order(agent_token=""), GATEWAY, URL, {}))

    assert "token" not in said
    assert "kici-env" not in said
    assert "backpressure" not in said


def test_a_cleared_document_holds_nothing() -> None:
    assert CLEARED == {"latest": {"meta-data": {}}}


def test_the_label_sets_variables_win_over_the_forwarded_ones() -> None:
    given = environment_of(order({"env": {"A": "own"}}, environment={"A": "worker", "B": "2"}))

    assert given.variables == {"A": "own", "B": "2"}


def test_a_variable_that_does_not_fit_is_left_out_and_a_smaller_one_is_not() -> None:
    given = within_budget({"A": "x" * 20_000, "B": "y" * 20_000, "C": "z"})

    assert list(given.variables) == ["A", "C"]
    assert len(given.warnings) == 1
    assert "`B`" in given.warnings[0]


@pytest.mark.parametrize("too_much", [0, 1])
def test_the_budget_counts_names_values_and_separators(too_much: int) -> None:
    value = "é" * ((BUDGET_BYTES - 1 - 2) // 2) + "x" * ((BUDGET_BYTES - 3) % 2 + too_much)

    assert len(within_budget({"A": value}).variables) == 1 - too_much


@pytest.mark.parametrize("name", ["1A", "A-B", "", "A B", "A\n"])
def test_what_is_no_name_of_a_variable_is_left_out(name: str) -> None:
    given = within_budget({name: "x", "GOOD_1": "y"})

    assert given.variables == {"GOOD_1": "y"}
    assert len(given.warnings) == 1


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        (["VFS: Unable to mount root fs on vda"], BootFailure.ROOTFS_MOUNT),
        (
            ["VFS: Unable to mount root fs", "Kernel panic - not syncing: VFS"],
            BootFailure.KERNEL_PANIC,
        ),
        (["Failed to execute /init (error -2)"], BootFailure.INIT),
        (["systemd[1]: Failed to start agent"], BootFailure.INIT),
        (["booting", "fine"], BootFailure.UNKNOWN),
        ([], BootFailure.UNKNOWN),
        (['{"message": "Kernel panic"}'], BootFailure.UNKNOWN),
        (["{Kernel panic"], BootFailure.KERNEL_PANIC),
    ],
)
def test_a_console_tells_why_a_guest_did_not_boot(lines: list[str], failure: BootFailure) -> None:
    assert classify(lines) is failure


def test_a_failure_is_told_with_the_line_that_shows_it() -> None:
    lines = ['{"message": "Kernel panic"}', "fine", "Kernel panic - not syncing: no init", "end"]

    assert told(classify(lines), lines) == (
        "kernel-panic: its kernel panicked: `Kernel panic - not syncing: no init`"
    )
    assert told(BootFailure.UNKNOWN, lines) == "unknown: nothing on its console says why"


def test_an_alarming_line_is_told_from_the_agents_own_log() -> None:
    assert is_alarming("[    0.5] Kernel panic - not syncing")
    assert not is_alarming('{"line": "Kernel panic"}')
    assert not is_alarming("all is well")


def test_the_exit_code_is_the_last_one_told_and_is_not_printed() -> None:
    lines = lines_of(b"hello\r\n\xff\x00bytes\r\nkici-agent-exit: 3\r\n")

    assert lines == ("hello", "�bytes", "kici-agent-exit: 3")
    assert exit_code(lines) == 3
    assert printed(lines) == ("hello", "�bytes")
    assert exit_code(["kici-agent-exit: 3 or so"]) is None
