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
    entries = [(_entry(path, uid, tarfile.DIRTYPE, 0o700), b"") for path in (FOLDER, STATE_DIR)]
    if token:
        entries.append((_entry(TOKEN_FILE, uid, tarfile.REGTYPE, 0o600), token.encode()))
    return _packed(entries)


def files_archive(files: Iterable[tuple[str, bytes]]) -> bytes:
    """A tar archive of files that everyone may read, each as (absolute path, content)."""
    return _packed((_entry(path, 0, tarfile.REGTYPE, 0o644), data) for path, data in files)


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


def _packed(entries: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """An archive that ends with its end mark.

    Archives are padded behind it by custom. Podman's reader (buildah's copier, until 2026) is
    gone once it has read the mark; where the padding comes later, the whole upload fails.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for entry, data in entries:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        end = archive.offset + 2 * tarfile.BLOCKSIZE
    return content.getvalue()[:end]
