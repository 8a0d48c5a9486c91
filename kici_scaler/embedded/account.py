"""The account that the embedded servers run under, and what it can reach.

Postgres refuses to run as root. Started by root, both servers therefore run as an unprivileged
account that owns their data and nothing else.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kici_scaler.embedded.errors import UnusableFolder

CANDIDATES: Final = ("postgres", "nobody")
"""Accounts tried in this order; the first is made for this very purpose."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this host."""

    name: str
    uid: int
    gid: int


def account_for(folder: Path) -> Account | None:
    """Whom servers with their data below `folder` run as; None: the caller's own account.

    A folder that exists keeps its owner, so that accounts added later change nothing.

    Raises:
        UnusableFolder: there is no account to use.
    """
    if os.geteuid() != 0:
        return None
    if folder.exists() and (owner := folder.stat().st_uid) != 0:
        return _owner(owner, folder)
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in CANDIDATES:
        if name in known:
            return _known(known[name])
    raise UnusableFolder(
        f"Postgres does not run as root, and there is no account {' or '.join(CANDIDATES)}",
        hint="Run as another user, add such an account, or set KICI_DATABASE_URL to a server.",
    )


def _owner(uid: int, folder: Path) -> Account:
    try:
        return _known(pwd.getpwuid(uid))
    except KeyError:
        raise UnusableFolder(
            f"{folder} belongs to user id {uid}, which no account of this host has",
            hint="Add an account with that id, or choose another --data-dir.",
        ) from None


def _known(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def closed_folder(path: Path, account: Account | None) -> Path | None:
    """The outermost existing folder at or above `path` that `account` cannot enter, if any."""
    if account is None:
        return None
    lineage = [*reversed(path.absolute().parents), path.absolute()]
    for folder in lineage:
        if folder.is_dir() and not _can_enter(folder.stat(), account):
            return folder
    return None


def check_reachable(folder: Path, account: Account | None) -> None:
    """See that the account can reach a folder.

    Raises:
        UnusableFolder: a folder on the way is closed to it; the message says which.
    """
    closed = closed_folder(folder, account)
    if closed is not None and account is not None:
        raise UnusableFolder(
            f"{folder} cannot hold data of Postgres and Redis, since the account"
            f" {account.name!r}, which they run as, cannot enter {closed}",
            hint=f"Choose another --data-dir, or let others pass: chmod o+x {closed}",
        )


def _can_enter(status: os.stat_result, account: Account) -> bool:
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def give(path: Path, account: Account | None) -> None:
    """Make `account` the owner of a file or folder (not of what is in it)."""
    if account is not None:
        os.chown(path, account.uid, account.gid)


def reachable_copy(source: Path, target: Path, account: Account | None) -> Path:
    """`source` when the account can enter it, else a copy of the tree at `target`.

    Programs of a virtual environment below root's home are the usual case.
    """
    if closed_folder(source, account) is None:
        return source
    if not target.exists():
        unfinished = target.with_name(target.name + ".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, unfinished, symlinks=True)
        unfinished.rename(target)
    return target
