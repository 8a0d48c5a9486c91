"""How an end is told."""

from __future__ import annotations

import pytest

from workers.container.judge import cause_of, is_over
from workers.container.seen import Seen
from workers.contract import ExitKind


def _seen(status: str = "exited", **more: object) -> Seen:
    return Seen("c0ffee", "kici-x", {}, status, **more)  # type: ignore[arg-type]  # named below


@pytest.mark.parametrize(
    ("seen", "was_stopped", "kernel_killed", "kind", "code", "signal"),
    [
        (_seen(exit_code=0), False, False, ExitKind.EXITED, 0, None),
        (_seen(exit_code=3), False, False, ExitKind.EXITED, 3, None),
        (_seen(exit_code=137), False, False, ExitKind.SIGNALLED, None, 9),
        (_seen(exit_code=139), False, False, ExitKind.SIGNALLED, None, 11),
        (_seen(exit_code=255), False, False, ExitKind.EXITED, 255, None),
        (_seen(exit_code=137), True, False, ExitKind.STOPPED, None, 9),
        (_seen(exit_code=0), True, False, ExitKind.STOPPED, 0, None),
        (
            _seen(exit_code=137, is_out_of_memory=True),
            False,
            False,
            ExitKind.OUT_OF_MEMORY,
            None,
            9,
        ),
        (_seen(exit_code=137), False, True, ExitKind.OUT_OF_MEMORY, None, 9),
        (_seen(exit_code=1, is_out_of_memory=True), True, False, ExitKind.OUT_OF_MEMORY, 1, None),
        (_seen(exit_code=0, is_out_of_memory=True), False, False, ExitKind.EXITED, 0, None),
        (
            _seen("created", exit_code=127, error="no such program"),
            False,
            False,
            ExitKind.START_FAILED,
            None,
            None,
        ),
        (_seen("created"), False, False, ExitKind.START_FAILED, None, None),
        (_seen("dead"), False, False, ExitKind.VANISHED, None, None),
    ],
)
def test_each_end_has_its_cause(
    seen: Seen,
    was_stopped: bool,
    kernel_killed: bool,
    kind: ExitKind,
    code: int | None,
    signal: int | None,
) -> None:
    cause = cause_of(seen, was_stopped=was_stopped, kernel_killed=kernel_killed)

    assert (cause.kind, cause.exit_code, cause.signal) == (kind, code, signal)
    assert cause.detail


def test_the_limit_is_named() -> None:
    killed = _seen(exit_code=137, is_out_of_memory=True, memory_bytes=64 << 20)
    outlived = _seen(exit_code=0, is_out_of_memory=True, memory_bytes=64 << 20)

    assert cause_of(killed).detail == "killed for passing its memory limit of 64 MiB"
    assert "killed for passing its memory limit of 64 MiB" in cause_of(outlived).detail


@pytest.mark.parametrize(
    ("seen", "over"),
    [
        (_seen("running"), False),
        (_seen("paused"), False),
        (_seen("created"), False),
        (_seen("created", error="no such program"), True),
        (_seen("exited"), True),
        (_seen("dead"), True),
    ],
)
def test_what_can_still_run_is_not_over(seen: Seen, over: bool) -> None:
    assert is_over(seen) is over
