"""`python -m examples.event_provisioner [--receiver FOLDER --secret-file FILE [--port N]]`.

Without options: a whole installation, three jobs on machines of the receiver, and an end.
With them: the receiver alone, for an installation of yours.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from rich.console import Console

from examples.event_provisioner.machines import Machines
from examples.event_provisioner.receiver import Provisioner, serving
from examples.event_provisioner.show import PORT, show


def main() -> int:
    """Run what the command line says; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.event_provisioner")
    parser.add_argument("--receiver", type=Path, metavar="FOLDER",
                        help="only receive events; keep what must be remembered here")  # fmt: skip
    parser.add_argument("--secret-file", type=Path, metavar="FILE",
                        help="the secrets that events are signed with, one a line")  # fmt: skip
    parser.add_argument("--port", type=int, default=PORT)
    chosen = parser.parse_args()
    console = Console(highlight=False)
    try:
        if chosen.receiver is None:
            return show(console)
        if chosen.secret_file is None:
            parser.error("--receiver needs --secret-file")
        return _receive(console, chosen.receiver, chosen.secret_file, chosen.port)
    except KeyboardInterrupt:
        return 130


def _receive(console: Console, folder: Path, secret_file: Path, port: int) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    secrets = tuple(secret_file.read_text().split())
    with serving(Provisioner(Machines(folder), secrets), port) as at:
        console.print(f"receiving events on http://127.0.0.1:{at}/ until Ctrl-C")
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
