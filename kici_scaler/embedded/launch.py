"""Become another program that cannot outlive its parent; run as a script, not imported.

Usage: launch.py SIGNAL PARENT UID GID PROGRAM [ARGUMENT ...]

The kernel sends SIGNAL to PROGRAM when the thread that started it is gone, also after a
`kill -9`. A UID of -1 keeps the account. Only the standard library is imported, so the start
costs little, and the account is dropped here because it may not be able to run this
interpreter. Exit code 127: PROGRAM cannot be run; 125: the parent was gone already.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Drop to the account, tie the own life to the parent's, then become the program."""
    death_signal, parent, uid, gid = (int(value) for value in arguments[:4])
    program = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # After the change of account: that change clears the setting.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        sys.stderr.write(f"cannot follow the parent: {os.strerror(ctypes.get_errno())}\n")
        return 126
    if os.getppid() != parent:
        return 125
    try:
        os.execv(program[0], program)
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]}: {error.strerror}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
