"""`python -m examples.demo [--keep]`."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from rich.console import Console

from examples.demo.run import run
from kici_scaler.cli.failures import show
from kici_scaler.errors import ExitCode, KiciError

WIDTH_OF_A_PIPE = 160


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _console() -> Console:
    """The standard output; wide where no terminal limits it."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH_OF_A_PIPE)


def main() -> int:
    """Run the demo as the command line says; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(_console(), keep=chosen.keep)
    except KiciError as error:
        show(error)
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
