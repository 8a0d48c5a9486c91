"""A small root file system with Python and busybox, from the packages of this machine's Debian.

`python -m tests.e2e.container.base_tree FILE` writes it as a tar file, for `docker import`. No
registry of images is needed, only the package sources that `apt-get` knows.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

WANTED = ("python3-minimal", "libpython3-stdlib", "busybox-static", "media-types")

_UNNEEDED = re.compile(
    r"(lib)?(perl|debconf|cdebconf|dpkg|newt|slang|textwrap|debian-installer|db5|gdbm|k5|krb5"
    r"|gssapi|nsl|tirpc|keyutils|com-err|ncurses|tinfo|readline)|install-info|mailcap"
    r"|mime-support|tar$|openssl|gcc-\d+-base"
)
"""Needed to install packages, or for modules that no test uses."""

_ACCOUNTS = "root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/tmp:/bin/sh\n"


def write_tree(target: Path) -> None:
    """Write the tar file, unless it is there already."""
    if target.exists():
        return
    with tempfile.TemporaryDirectory(prefix="kici-tree-") as folder:
        root = Path(folder) / "root"
        packages = Path(folder) / "packages"
        _make_folders(root)
        packages.mkdir(mode=0o755)
        Path(folder).chmod(0o755)
        names = [each for each in _with_dependencies() if not _UNNEEDED.match(each)]
        _run("apt-get", "download", "-qq", *names, folder=packages)
        for package in sorted(packages.glob("*.deb")):
            _unpack(package, root)
        _finish(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(".fresh")
        with tarfile.open(fresh, "w") as archive:
            archive.add(root, arcname=".", filter=_owned_by_root)
        fresh.replace(target)


def _with_dependencies() -> list[str]:
    left_out = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    options = [f"--no-{each}" for each in left_out]
    said = _run("apt-cache", "depends", "--recurse", *options, *WANTED)
    return sorted({line for line in said.splitlines() if re.match(r"\w", line)})


def _make_folders(root: Path) -> None:
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("tmp", "proc", "sys", "dev", "etc", "run", "root", "var"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)


def _unpack(package: Path, root: Path) -> None:
    content = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True
    ).stdout
    command = ["tar", "-C", str(root), "-x", "--keep-directory-symlink"]
    subprocess.run(command, input=content, check=True)


def _finish(root: Path) -> None:
    for folder in ("doc", "man", "lintian", "locale"):
        shutil.rmtree(root / "usr/share" / folder, ignore_errors=True)
    busybox = root / "usr/bin/busybox"
    for applet in _run(str(busybox), "--list").split():
        if not (root / "usr/bin" / applet).exists():
            (root / "usr/bin" / applet).symlink_to("busybox")
    interpreters = sorted((root / "usr/bin").glob("python3.*[0-9]"))
    if not (root / "usr/bin/python3").exists():
        (root / "usr/bin/python3").symlink_to(interpreters[-1].name)
    (root / "etc/passwd").write_text(_ACCOUNTS)


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def _run(*command: str, folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    write_tree(Path(sys.argv[1]))
