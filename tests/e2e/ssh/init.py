"""The first process of a test machine: mounts what makes it a machine, serves, reaps.

`python init.py NAME FOLDER` in fresh namespaces; reads `sshd` lines from its standard input,
each of which starts the server. Ends, and with it every process of the machine, when that closes.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def prepare(name: str, folder: Path) -> None:
    """Its own processes, host name, boot and disk."""
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "proc", "proc", "/proc")
    _run("hostname", name)
    boot = "/proc/sys/kernel/random/boot_id"
    _run("mount", "--bind", str(folder / "boot_id"), boot)
    _run("ip", "link", "set", "lo", "up")


def main(name: str, folder: Path) -> None:
    """Be the machine."""
    prepare(name, folder)
    print("prepared", flush=True)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(waker)
    while True:
        ready = select.select([sys.stdin.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
        _reap()
        if sys.stdin.fileno() in ready:
            line = os.read(sys.stdin.fileno(), 4096)
            if not line:
                return
            _serve(folder)


def _serve(folder: Path) -> None:
    if os.fork() == 0:
        os.setsid()
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp("/usr/sbin/sshd", ["/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/sshd_config"])


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
