"""How a container ended, from what the runtime and the kernel say; pure."""

from __future__ import annotations

from workers.container.seen import Seen
from workers.contract import ExitCause, ExitKind

_SIGNALS_FROM = 128
_SIGNALS_TO = 128 + 64
_KILL = 9


def is_over(seen: Seen) -> bool:
    """Whether it will never run again: it ended, or could not be started."""
    return not seen.is_running and not seen.is_unstarted


def kind_of(seen: Seen, *, was_stopped: bool, kernel_killed: bool) -> ExitKind:
    """Why it does not run.

    Args:
        was_stopped: a destroy of ours had begun before it ended.
        kernel_killed: the kernel wrote that it killed a process in it for passing the limit.
    """
    if seen.status == "created":
        return ExitKind.START_FAILED
    if seen.status == "dead":
        return ExitKind.VANISHED
    if seen.exit_code != 0 and (seen.is_out_of_memory or kernel_killed):
        return ExitKind.OUT_OF_MEMORY
    if was_stopped:
        return ExitKind.STOPPED
    if _SIGNALS_FROM < seen.exit_code <= _SIGNALS_TO:
        return ExitKind.SIGNALLED
    return ExitKind.START_FAILED if seen.error else ExitKind.EXITED


def cause_of(
    seen: Seen,
    *,
    was_stopped: bool = False,
    kernel_killed: bool = False,
    log_tail: tuple[str, ...] = (),
    spool: str | None = None,
) -> ExitCause:
    """How it ended, in the words of the contract."""
    kind = kind_of(seen, was_stopped=was_stopped, kernel_killed=kernel_killed)
    ran = kind not in (ExitKind.START_FAILED, ExitKind.VANISHED)
    signalled = ran and _SIGNALS_FROM < seen.exit_code <= _SIGNALS_TO
    return ExitCause(
        kind=kind,
        exit_code=seen.exit_code if ran and not signalled else None,
        signal=seen.exit_code - _SIGNALS_FROM if signalled else None,
        detail=_detail(seen, kind, killed=seen.is_out_of_memory or kernel_killed),
        log_tail=log_tail,
        spool=spool,
    )


def _detail(seen: Seen, kind: ExitKind, *, killed: bool) -> str:
    limit = f"its memory limit of {seen.memory_bytes >> 20} MiB" if seen.memory_bytes else "memory"
    match kind:
        case ExitKind.OUT_OF_MEMORY:
            return f"killed for passing {limit}"
        case ExitKind.START_FAILED:
            return seen.error or "its start was cut short"
        case ExitKind.VANISHED:
            return seen.error or "the runtime lost it"
        case ExitKind.SIGNALLED:
            return f"ended by signal {seen.exit_code - _SIGNALS_FROM}"
        case _ if killed:
            return f"exit code {seen.exit_code}; a process in it was killed for passing {limit}"
        case _:
            return f"exit code {seen.exit_code}"
