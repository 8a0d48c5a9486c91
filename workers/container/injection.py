"""What is put into a container before it starts: the agent's token, and room for its spool.

The token is a file that only the agent's user can read, and that the agent deletes. It is in
no environment, so inspecting the container never shows it.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable

FOLDER = "/run/kici-agent"
TOKEN_FILE = f"{FOLDER}/token"
STATE_DIR = f"{FOLDER}/state"
RESULT_FILE = f"{STATE_DIR}/result.json"
"""The agent's undelivered result, read from a container that has ended."""


def agent_archive(token: str, uid: int) -> bytes:
    """The tar archive of the agent's folder, to be unpacked at the root of the container.

    `uid` is the user the agent runs as; the group is of no matter, as it may do nothing.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in (FOLDER, STATE_DIR):
            archive.addfile(_entry(path, uid, tarfile.DIRTYPE, 0o700))
        if token:
            file = _entry(TOKEN_FILE, uid, tarfile.REGTYPE, 0o600)
            file.size = len(token.encode())
            archive.addfile(file, io.BytesIO(token.encode()))
    return content.getvalue()


def files_archive(files: Iterable[tuple[str, bytes]]) -> bytes:
    """A tar archive of files that everyone may read, each as (absolute path, content)."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, data in files:
            file = _entry(path, 0, tarfile.REGTYPE, 0o644)
            file.size = len(data)
            archive.addfile(file, io.BytesIO(data))
    return content.getvalue()


def user_name(written: str) -> str:
    """The user in an image's `USER`, which is `name`, `uid`, or either with `:group`."""
    return written.partition(":")[0]


def uid_of(written: str, passwd: str = "") -> int:
    """The number of the user that a container with that `USER` runs as.

    `passwd` is the text of the image's own account file. Whoever is not in it is taken for
    root; the runtime itself refuses such a name at the start.
    """
    name = user_name(written)
    if name.isdecimal():
        return int(name)
    lines = (line.split(":") for line in passwd.splitlines())
    found = (line[2] for line in lines if len(line) > 2 and line[0] == name)
    text = next(found, "")
    return int(text) if text.isdecimal() else 0


def _entry(path: str, uid: int, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.removeprefix("/"))
    entry.type, entry.mode, entry.uid = kind, mode, uid
    return entry
