"""The agent with its own Python in a volume, for jobs that bring an image of their own.

The volume is filled from the agent's image, once for each content of it: its name is derived
from everything that goes in, so a moved tag or a newer agent makes another volume and never
changes one that is mounted. Agents have it read-only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.errors import APIError, NotFound
from filelock import FileLock, Timeout

from kici_scaler.agent.build import zipapp_bytes
from workers.container import containers, injection
from workers.container.engine import Connection
from workers.container.marks import INSTALLATION, MANAGED, PURPOSE, YES
from workers.errors import NotDone

FOLDER = "/opt/kici"

COMMAND = (
    f"{FOLDER}/loader",
    "--library-path",
    f"{FOLDER}/libraries",
    f"{FOLDER}/python/bin/python3",
    "-I",
    "-B",
    f"{FOLDER}/launch.py",
)
"""What runs in a job's image instead of its own command."""

FILLING = "fill-runtime"
"""The purpose written on a container that fills a volume."""

KEPT = "runtime"
"""The purpose written on a volume."""

PREFIX = "kici-runtime-"

_COMPLETE = f"{FOLDER}/.complete"
_SOURCES = "/run/kici-fill"
_FILLER_BYTES = 512 << 20
_IN_USE = 409


def key_of(agent_image: str) -> str:
    """What tells a volume's content apart; `agent_image` is the id of the agent's image."""
    digest = hashlib.sha256(agent_image.encode())
    for _, data in _sources():
        digest.update(hashlib.sha256(data).digest())
    return digest.hexdigest()[:32]


def volume_name(agent_image: str) -> str:
    """The volume for an agent's image, by its id."""
    return PREFIX + key_of(agent_image)


def make(connection: Connection, agent_image: str, installation_id: str) -> str:
    """The name of the volume, which is there from now on, perhaps not yet filled."""
    name = volume_name(agent_image)
    marks = {MANAGED: YES, INSTALLATION: installation_id, PURPOSE: KEPT}
    connection.change(
        "make the volume of the agent", lambda api: api.create_volume(name, labels=marks)
    )
    return name


def ensure_filled(
    connection: Connection, agent_image: str, agent: str, installation_id: str, locks: Path
) -> None:
    """See that the volume is filled that the container `agent` mounts; it need not run.

    Spawns that need the same one wait for the first.

    Raises:
        NotDone: it could not be filled; the message has what the filling said.
        OutcomeUnknown: the runtime stopped answering.
    """
    key = key_of(agent_image)
    if _is_complete(connection, agent, key):
        return
    locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(locks / f"fill-{key}.lock", timeout=connection.deadline.remaining)
    try:
        with lock:
            if not _is_complete(connection, agent, key):
                _fill(connection, agent_image, installation_id)
    except Timeout as error:
        raise NotDone("another spawn packs the agent, and that takes too long") from error


def _is_complete(connection: Connection, agent: str, key: str) -> bool:
    return containers.file(connection, agent, _COMPLETE) == key.encode()


def _fill(connection: Connection, agent_image: str, installation_id: str) -> None:
    name = f"{volume_name(agent_image)}-fill"
    body = _filler(agent_image, installation_id)
    if not containers.create(connection, name, body):
        # Another machine fills it, or a worker was killed while it did.
        other = containers.find(connection, name)
        if other is not None and other.is_running:
            containers.wait(connection, name)
        containers.remove(connection, name)
        containers.create(connection, name, body)
    try:
        containers.upload(connection, name, injection.files_archive(_sources()))
        containers.start(connection, name)
        code = containers.wait(connection, name)
        said = containers.printed(connection, name, 5) if code else b""
    finally:
        containers.remove(connection, name)
    if code:
        raise NotDone(
            f"the agent could not be packed for the job's image: exit code {code}: "
            f"{said.decode(errors='replace').strip()}",
            hint="the image of the label set needs python3, 3.11 or newer",
        )


def _filler(agent_image: str, installation_id: str) -> Mapping[str, object]:
    return {
        "Image": agent_image,
        "User": "0",
        "Entrypoint": ["python3"],
        "Cmd": [f"{_SOURCES}/fill.py", FOLDER, _SOURCES, key_of(agent_image)],
        "Labels": {MANAGED: YES, INSTALLATION: installation_id, PURPOSE: FILLING},
        "HostConfig": {
            "Binds": [f"{volume_name(agent_image)}:{FOLDER}:rw,nocopy"],
            "NetworkMode": "none",
            "Memory": _FILLER_BYTES,
        },
    }


def remove_unused(connection: Connection, installation_id: str, kept: Collection[str] = ()) -> int:
    """Remove this installation's volumes that nobody mounts, but for those named; how many.

    One without an owner was made by the runtime itself, for a container whose volume had just
    been removed; it is anybody's.
    """

    def ask(api: APIClient) -> list[str]:
        listing: Callable[..., Any] = api.volumes
        found = listing(filters={"name": PREFIX}).get("Volumes") or ()
        owners = {each["Name"]: (each.get("Labels") or {}).get(INSTALLATION) for each in found}
        return [name for name, owner in owners.items()
                if name.startswith(PREFIX) and owner in (None, installation_id)]  # fmt: skip

    names = connection.read("list the volumes", ask)
    return sum(_remove(connection, each) for each in names if each not in kept)


def _remove(connection: Connection, name: str) -> bool:
    def ask(api: APIClient) -> bool:
        try:
            api.remove_volume(name)
        except NotFound:
            return False
        except APIError as error:
            if error.response is None or error.response.status_code != _IN_USE:
                raise
            return False
        return True

    return connection.change(f"remove the volume {name}", ask)


@lru_cache(maxsize=1)
def _sources() -> tuple[tuple[str, bytes], ...]:
    """What goes into the filling container, as (path, content)."""
    folder = resources.files("workers.container") / "bundle"
    programs = [(name, (folder / name).read_bytes()) for name in ("fill.py", "launch.py")]
    return tuple((f"{_SOURCES}/{name}", data) for name, data in
                 [("agent.pyz", zipapp_bytes()), *programs])  # fmt: skip
