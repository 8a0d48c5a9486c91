"""What the backend asks a runtime about containers, one request a function."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Callable, Mapping
from typing import Any

from docker import APIClient
from docker.errors import APIError, NotFound

from workers.container.engine import Connection
from workers.container.marks import MANAGED, YES
from workers.container.seen import Listed, Seen

_CONFLICT = 409
_MOST_BYTES = 8 << 20
"""Files that are read out of a container are small; whatever is larger is none of ours."""


def find(connection: Connection, name: str) -> Seen | None:
    """The container of that name or id; None when there certainly is none."""

    def ask(api: APIClient) -> Seen | None:
        try:
            return Seen.of(api.inspect_container(name))
        except NotFound:
            return None

    return connection.read(f"look at {name}", ask)


def listed(connection: Connection, **marks: str) -> tuple[Listed, ...]:
    """All our containers, ended ones included, that bear these marks too (`kici-` left off)."""
    wanted = [f"{MANAGED}={YES}", *(f"{_label(key)}={value}" for key, value in marks.items())]
    found = connection.read(
        "list the containers", lambda api: api.containers(all=True, filters={"label": wanted})
    )
    seen = (Listed.of(each) for each in found)
    # Not every runtime takes several filters as all of them.
    return tuple(
        each
        for each in seen
        if each.marks.get(MANAGED) == YES
        and all(each.marks.get(_label(key)) == value for key, value in marks.items())
    )


def create(connection: Connection, name: str, body: Mapping[str, Any]) -> bool:
    """Make a container, not started; False when the name is taken."""

    def ask(api: APIClient) -> bool:
        make: Callable[..., object] = api.create_container_from_config
        try:
            make(dict(body), name)
        except APIError as error:
            if not _is_taken(error):
                raise
            return False
        return True

    return connection.change("create the container", ask)


def upload(connection: Connection, name: str, archive: bytes) -> None:
    """Put the files of a tar archive into a container, from its root on."""
    connection.change(
        "put files into the container", lambda api: api.put_archive(name, "/", archive)
    )


def start(connection: Connection, name: str) -> None:
    """Start it; started already is success."""
    connection.change("start the container", lambda api: api.start(name))


def stop(connection: Connection, name: str, grace: int) -> None:
    """TERM, then KILL after `grace` seconds; gone or ended already is success."""

    def ask(api: APIClient) -> None:
        with contextlib.suppress(NotFound):
            api.stop(name, timeout=grace)

    connection.change("stop the container", ask, patience=grace)


def remove(connection: Connection, name: str) -> None:
    """Remove it with its anonymous volumes, killing it if need be; gone already is success."""

    def ask(api: APIClient) -> None:
        try:
            api.remove_container(name, v=True, force=True)
        except NotFound:
            return
        except APIError as error:
            # Somebody is removing it at this moment; whether they did is looked at next.
            if error.response is None or error.response.status_code != _CONFLICT:
                raise

    connection.change("remove the container", ask)


def wait(connection: Connection, name: str) -> int:
    """Wait for its end; its exit code."""

    def ask(api: APIClient) -> int:
        answer: Mapping[str, Any] = api.wait(name)
        return int(answer["StatusCode"])

    return connection.read("wait for the container", ask)


def printed(connection: Connection, name: str, lines: int) -> bytes:
    """About as many of the last lines it printed; nothing when it is gone or keeps none."""

    def ask(api: APIClient) -> bytes:
        try:
            said: Any = api.logs(name, stdout=True, stderr=True, tail=lines)
        except NotFound:
            return b""
        return said if isinstance(said, bytes) else b"".join(said)

    return connection.read("read what the container printed", ask)


def file(connection: Connection, name: str, path: str) -> bytes | None:
    """The content of a file in a container, also an ended one; None when there is none."""

    def ask(api: APIClient) -> bytes | None:
        try:
            pieces, _ = api.get_archive(name, path)
        except NotFound:
            return None
        return _only_file(pieces)

    return connection.read(f"read {path} from the container", ask)


def _only_file(pieces: Any) -> bytes | None:
    content = io.BytesIO()
    for piece in pieces:
        if content.tell() + len(piece) > _MOST_BYTES:
            return None
        content.write(piece)
    content.seek(0)
    with tarfile.open(fileobj=content) as archive:
        members = [each for each in archive.getmembers() if each.isfile()]
        inside = archive.extractfile(members[0]) if len(members) == 1 else None
        return inside.read() if inside is not None else None


def _is_taken(error: APIError) -> bool:
    """Docker answers 409; Podman 409 or 500, and says that the name is in use."""
    said = str(error.explanation or error).lower()
    in_use = "already in use" in said or "name is in use" in said
    return in_use or (error.response is not None and error.response.status_code == _CONFLICT)


def _label(key: str) -> str:
    return f"kici-{key.replace('_', '-')}"
