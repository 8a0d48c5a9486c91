"""The folder of one microVM: what its process is given to read, and what it may write."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

from workers.contract import Deadline
from workers.errors import NotDone, OutcomeUnknown, Permanent
from workers.firecracker.layout import Layout
from workers.firecracker.machine import MIB
from workers.firecracker.settings import Images, Programs

MKFS_SECONDS = 30.0
"""What formatting may take; the reference's number."""

KEPT_FREE_BYTES = 1 << 30
"""Below this much free space nothing new is begun on a file system; the reference's number."""


def require_room(base: Path) -> None:
    """See that there is room for another microVM. Raises `NotDone`."""
    if free_bytes(base) < KEPT_FREE_BYTES:
        raise NotDone(
            f"less than {KEPT_FREE_BYTES // MIB} MiB are free below {base}",
            hint="run `kici-scaler reap-orphans`, or give the chroot base a larger disk",
        )


def free_bytes(base: Path) -> int:
    """What is free where that folder is, or will be."""
    place = next(each for each in (base, *base.parents) if each.exists())
    return shutil.disk_usage(place).free


def make_folders(layout: Layout) -> None:
    """The folders; those above the jail are for root alone. Raises `NotDone`."""
    try:
        layout.base.mkdir(parents=True, exist_ok=True)
        layout.home.mkdir(mode=0o711, parents=True, exist_ok=True)
        layout.root.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise NotDone(f"{layout.root} cannot be made: {error}") from error


def place_images(layout: Layout, images: Images, programs: Programs) -> None:
    """Kernel and root: links, so that they cost neither time nor room; else copies.

    The originals are shared, so their owner is never changed. A file that the jail's user could
    not read, or could write, is copied instead.

    Raises:
        Permanent: an original is not there.
        NotDone: it cannot be linked or copied.
    """
    for source, name in ((images.kernel, "kernel"), (images.rootfs, "rootfs.ext4")):
        target = layout.root / name
        try:
            _place(source, target, programs)
        except FileNotFoundError as error:
            raise Permanent(
                f"{source} is not there", hint="put it there, or correct its path"
            ) from error
        except OSError as error:
            raise NotDone(f"{source} cannot be put into the jail: {error}") from error


def make_overlay(layout: Layout, images: Images, deadline: Deadline) -> None:
    """The drive that the guest may write: as large as it says, as small on disk as it is empty.

    Raises:
        NotDone: it cannot be made.
        OutcomeUnknown: formatting did not end in time.
    """
    path = layout.root / "overlay.ext4"
    try:
        with path.open("wb") as file:
            file.truncate(images.overlay_mib * MIB)
        done = subprocess.run(
            ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(path)],
            capture_output=True,
            text=True,
            timeout=max(0.1, deadline.within(MKFS_SECONDS).remaining),
            check=False,
        )
    except FileNotFoundError as error:
        raise NotDone("there is no `mkfs.ext4` on the path", hint="install e2fsprogs") from error
    except subprocess.TimeoutExpired as error:
        raise OutcomeUnknown(f"`mkfs.ext4` did not format {path} in time") from error
    except OSError as error:
        raise NotDone(f"{path} cannot be made: {error}") from error
    if done.returncode != 0:
        raise NotDone(f"`mkfs.ext4` failed for {path}: {done.stderr.strip()}")


def write_configuration(layout: Layout, document: object) -> None:
    """What Firecracker reads at its start, and its log, which it may only append to."""
    try:
        (layout.root / "config.json").write_text(json.dumps(document))
        layout.vmm_log.touch(mode=0o600)
    except OSError as error:
        raise NotDone(f"{layout.root} cannot be written: {error}") from error


def hand_over(layout: Layout, programs: Programs) -> None:
    """Give the jail's user what was made for it, and none of the shared originals."""
    own = [
        layout.root,
        *(layout.root / each for each in ("overlay.ext4", "config.json", "vmm.log")),
    ]
    try:
        for path in own:
            os.chown(path, programs.uid, programs.gid, follow_symlinks=False)
    except OSError as error:
        raise NotDone(
            f"{layout.root} cannot be given to user {programs.uid}: {error}",
            hint="run the worker as root",
        ) from error


def remove(layout: Layout) -> None:
    """Take the whole folder away; nothing there is success.

    Raises:
        OutcomeUnknown: some of it is still there.
    """
    try:
        shutil.rmtree(layout.home)
    except FileNotFoundError:
        if layout.home.exists():
            raise OutcomeUnknown(f"{layout.home} changed while it was removed") from None
    except OSError as error:
        raise OutcomeUnknown(f"{layout.home} cannot be removed: {error}") from error


def _place(source: Path, target: Path, programs: Programs) -> None:
    target.unlink(missing_ok=True)
    about = source.stat()
    if _may(about, programs, stat.S_IRUSR) and not _may(about, programs, stat.S_IWUSR):
        try:
            target.hardlink_to(source.resolve())
            return
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
                raise
    shutil.copyfile(source, target)
    os.chown(target, programs.uid, programs.gid)
    target.chmod(0o400)


def _may(about: os.stat_result, programs: Programs, as_owner: int) -> bool:
    """Whether the jail's user may do that; `as_owner` is the bit of the file's owner for it.

    Root may do anything, but needs no protection from itself: it counts as a stranger.
    """
    if programs.uid == about.st_uid and programs.uid != 0:
        return bool(about.st_mode & as_owner)
    if programs.gid == about.st_gid and programs.gid != 0:
        return bool(about.st_mode & (as_owner >> 3))
    return bool(about.st_mode & (as_owner >> 6))
