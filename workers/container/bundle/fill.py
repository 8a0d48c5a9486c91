"""Copies the Python that runs it, and all it needs, to where any container can run it.

Runs in a container of the agent's image, as `python3 fill.py TARGET SOURCES KEY`, with an
empty or half-filled volume at TARGET. What it leaves there runs in an image that has nothing:
the dynamic loader is started by name and told where the libraries lie, so neither a shell nor
the image's own C library, nor any variable that the job's programs would inherit, is needed.

    TARGET/loader                        the dynamic loader
    TARGET/libraries/                    every shared library Python and its modules load
    TARGET/python/bin/python3            the interpreter
    TARGET/python/lib/python3.X/         its standard library
    TARGET/agent.pyz, launch.py          copied from SOURCES
    TARGET/certificates.pem              the authorities the agent's image trusts, if any
    TARGET/.complete                     KEY, written last
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import ssl
import struct
import sys
import sysconfig
from pathlib import Path
from typing import Any

LEAST_PYTHON = (3, 11)
"""What the agent needs."""

_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "*.pyc", "*.a", "site-packages", "dist-packages", "test", "tests",
    "idlelib", "tkinter", "turtledemo", "turtle.py", "ensurepip", "lib2to3", "config-*",
    "pydoc_data", "_tkinter*",
)  # fmt: skip

_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)


class _Loaded(ctypes.Structure):
    """The beginning of the C library's `struct dl_phdr_info`."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p
)


def fill(target: Path, sources: Path, key: str) -> None:
    """Fill the target, whatever of it is there already."""
    if sys.version_info < LEAST_PYTHON:
        sys.exit(f"the agent's image has Python {sys.version.split()[0]}, which is too old")
    os.umask(0o022)
    _load_every_module()
    for path in _loaded_libraries():
        _copy(path, target / "libraries" / path.name)
    _copy(_loader(), target / "loader")
    _copy(Path(sys.executable).resolve(), target / "python/bin/python3")
    home = target / "python/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for name in ("stdlib", "platstdlib"):
        shutil.copytree(sysconfig.get_path(name), home, ignore=_LEFT_OUT, dirs_exist_ok=True)
    for name in ("agent.pyz", "launch.py"):
        _copy(sources / name, target / name)
    _copy_authorities(target / "certificates.pem")
    _write_last(target / ".complete", key)


def _load_every_module() -> None:
    """Have the kernel map every library that some module of the standard library needs."""
    folder = Path(sysconfig.get_config_var("DESTSHARED") or "")
    for file in sorted(folder.glob("*.so")):
        try:
            importlib.import_module(file.name.partition(".")[0])
        except ImportError as problem:
            print(f"left out: {problem}", file=sys.stderr)


def _loaded_libraries() -> list[Path]:
    """The shared libraries of this process, by the names they were asked for."""
    found: list[Path] = []

    def note(info: Any, _size: int, _data: object) -> int:
        path = Path(os.fsdecode(info.contents.name or b""))
        if path.is_file() and "lib-dynload" not in path.parts:
            found.append(path)
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(_CALLBACK(note), None)
    return found


def _loader() -> Path:
    """The dynamic loader that the interpreter's own file names."""
    data = Path(sys.executable).resolve().read_bytes()
    start, size, count = (
        struct.unpack_from("<Q", data, 32)[0],
        *struct.unpack_from("<HH", data, 54),
    )
    for number in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, start + number * size)
        if kind == 3:
            return Path(os.fsdecode(data[offset : offset + length].rstrip(b"\0")))
    sys.exit("the agent's image has a Python without a dynamic loader, which cannot be copied")


def _copy_authorities(target: Path) -> None:
    own = ssl.get_default_verify_paths().cafile
    for each in (own, *_AUTHORITIES):
        if each and Path(each).is_file():
            _copy(Path(each), target)
            return


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    executable = os.access(source, os.X_OK)
    target.chmod(0o755 if executable else 0o644)


def _write_last(target: Path, key: str) -> None:
    os.sync()
    fresh = target.with_suffix(".fresh")
    fresh.write_text(key)
    fresh.replace(target)


if __name__ == "__main__":
    fill(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
