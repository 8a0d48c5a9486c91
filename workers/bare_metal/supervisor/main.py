"""The command line: one command, JSON in, JSON out."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from . import files, preflight, reports, start, stop
from .folder import Root
from .refusal import Refused


class Command(Protocol):
    """What each command is: the root folder, what was asked, and the moment of the monotonic
    clock by which to answer, to the answer."""

    def __call__(
        self, root: Root, content: dict[str, Any], give_up_at: float, /
    ) -> dict[str, Any]: ...


COMMANDS: dict[str, Command] = {
    "start": start.start,
    "stop": stop.stop,
    "list": reports.list_agents,
    "status": reports.status,
    "logs": reports.logs,
    "exit-cause": reports.exit_cause,
    "check": preflight.check,
    "hello": preflight.hello,
}


USAGE = f"usage: supervisor --root FOLDER {'|'.join(sorted(COMMANDS))} < JSON"


def run(arguments: list[str]) -> int:
    """Run one command; 0 when it was answered, even by a refusal; 2 when it is none."""
    if len(arguments) != 3 or arguments[0] != "--root" or arguments[2] not in COMMANDS:
        print(USAGE, file=sys.stderr)
        return 2
    # What the asking process ignores or blocks must not be inherited by what is started.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    content = json.load(sys.stdin)
    give_up_at = time.monotonic() + float(content["deadline_seconds"])
    os.umask(0o077)
    answer = _answer(COMMANDS[arguments[2]], Path(arguments[1]).resolve(), content, give_up_at)
    json.dump(answer, sys.stdout)
    sys.stdout.flush()
    return 0


def _answer(
    command: Command, path: Path, content: dict[str, Any], give_up_at: float
) -> dict[str, Any]:
    try:
        files.make_private(path)
    except OSError as error:
        return {"ok": False, "code": "not-done", "message": f"{path} cannot be made: {error}"}
    try:
        return {"ok": True, **command(Root(path), content, give_up_at)}
    except Refused as refusal:
        return {
            "ok": False,
            "code": refusal.code,
            "message": refusal.message,
            **refusal.facts,
        }
    except OSError as error:
        return {"ok": False, "code": "unknown", "message": str(error)}
