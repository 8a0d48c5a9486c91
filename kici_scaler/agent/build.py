"""Packs the agent and `websockets` into one file that needs only python3, 3.11 or newer.

The same sources give the same bytes on any machine: entries are sorted, uncompressed,
and carry no time of their own. `websockets` is taken from where it is installed, without
its C speedups (it works without) and the parts no client needs.

`python -m kici_scaler.agent.build FILE` writes the file and prints its sha256.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import websockets

_LEFT_OUT = ("build.py", "__main__.py")
_UNUSED = ("legacy", "sync", "trio", "cli.py", "__main__.py")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = '''"""The kici-scaler agent in one file; documented in docs/agent-protocol.md."""

import sys

if sys.version_info < (3, 11):
    found = sys.version.split()[0]
    sys.stderr.write("the agent needs python3 3.11 or newer, this is %s\\n" % found)
    sys.exit(2)

from kici_scaler.agent.main import main

sys.exit(main())
'''


def build_zipapp(target: Path) -> Path:
    """Write the agent as one executable file; returns `target`.

    The file appears whole or not at all, so it may be replaced while agents start.

    Raises:
        OSError: it cannot be written there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(zipapp_bytes())
        Path(temporary).chmod(0o755)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def content_digest() -> str:
    """The sha256 of the file `build_zipapp` writes, in hex; names a copy by what is in it."""
    return hashlib.sha256(zipapp_bytes()).hexdigest()


def zipapp_bytes() -> bytes:
    """What `build_zipapp` writes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(_entries()):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return _SHEBANG + buffer.getvalue()


def _entries() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", _MAIN.encode()
    yield "kici_scaler/__init__.py", b""
    yield from _sources(Path(__file__).parent, "kici_scaler/agent", _LEFT_OUT)
    yield from _sources(Path(websockets.__file__).parent, "websockets", _UNUSED)
    yield from _licence()


def _sources(package: Path, name: str, without: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for path in package.rglob("*.py"):
        inside = path.relative_to(package)
        if inside.parts[0] not in without:
            yield f"{name}/{inside.as_posix()}", path.read_bytes()


def _licence() -> Iterator[tuple[str, bytes]]:
    """The licence of `websockets`, which asks to be kept with every copy."""
    for file in importlib.metadata.files("websockets") or ():
        if file.name == "LICENSE":
            yield "websockets/LICENSE", Path(str(file.locate())).read_bytes()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m kici_scaler.agent.build FILE")
    print(content_digest(), build_zipapp(Path(sys.argv[1])))
