"""Forking the agent: it runs nothing until the record that names it is on the disk."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple, NoReturn

from . import cgroups, processes
from .folder import Folder
from .order import Order
from .processes import Identity

_RESET = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
)


class Born(NamedTuple):
    """The agent's process, and the descriptor its output is read from."""

    process: Identity
    output: int


class _Pipes(NamedTuple):
    """Descriptors shared by monitor and agent, as (read end, write end)."""

    release: tuple[int, int]
    """One byte lets the agent go on; end of file tells it that its monitor is gone."""
    output: tuple[int, int]
    failure: tuple[int, int]
    """Why it could not be run; closed without a word by a successful exec."""


def fork(folder: Folder, order: Order) -> Born:
    """Start the agent.

    Raises:
        OSError: it cannot be run; nothing of it is left.
    """
    pipes = _Pipes(os.pipe(), os.pipe(), os.pipe())
    environment, program = order.environment(folder), order.program(folder)
    pid = os.fork()
    if pid == 0:
        _run(folder, program, environment, pipes)
    for descriptor in (pipes.release[0], pipes.output[1], pipes.failure[1]):
        os.close(descriptor)
    try:
        identity = processes.identify(pid)
        folder.process = identity
        os.write(pipes.release[1], b"g")
    finally:
        os.close(pipes.release[1])
    failure = _read_all(pipes.failure[0])
    if failure:
        os.waitpid(pid, 0)
        number, _, subject = failure.partition(" ")
        raise OSError(int(number), os.strerror(int(number)), subject or None)
    return Born(identity, pipes.output[0])


def _read_all(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb") as file:
        return file.read().decode(errors="replace")


def _run(
    folder: Folder, program: list[str], environment: dict[str, str], pipes: _Pipes
) -> NoReturn:
    """The child: wait for release, become the agent."""
    try:
        os.setsid()
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        os.close(pipes.release[1])
        if not os.read(pipes.release[0], 1):
            os._exit(125)
        record = folder.record or {"cgroups": []}
        cgroups.join(record["cgroups"])
        os.umask(0o022)
        os.chdir(str(folder.work))
        for standard in (1, 2):
            os.dup2(pipes.output[1], standard)
        os.execvpe(program[0], program, environment)
    except OSError as error:
        os.write(pipes.failure[1], f"{error.errno} {error.filename or ''}".encode())
    finally:
        os._exit(127)
