"""Images: what is there, and pulling what is not, one pull an image and machine at a time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from docker import APIClient
from docker.errors import ImageNotFound, NotFound
from filelock import FileLock, Timeout

from workers.container.engine import Connection, translated
from workers.contract import RegistryCredentials
from workers.errors import BackendError, NotDone, Permanent

TELL_SECONDS = 2.0
"""Progress of a pull is told about this often."""

_HOPELESS = (
    "access denied",
    "denied:",
    "unauthorized",
    "authentication required",
    "no basic auth credentials",
    "invalid username/password",
    "manifest unknown",
    "not found",
    "no matching manifest",
    "invalid reference format",
    "no such image",
)
"""In a refusal of a registry: trying again would bring the same answer."""


class PullPolicy(StrEnum):
    """When an image is pulled."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is on the machine. `user` is as the image names it; empty is root."""

    id: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An image that is needed, and who wants to hear how its pull goes."""

    name: str
    policy: PullPolicy
    tell: Callable[[str], None]
    credentials: RegistryCredentials | None = None
    is_of_job: bool = False


@dataclass(slots=True)
class Progress:
    """How far the layers of a pull are, in bytes."""

    _layers: dict[str, tuple[int, int]] = field(default_factory=dict)

    def note(self, event: Mapping[str, Any]) -> None:
        """Take in one event of a pull."""
        detail = event.get("progressDetail") or {}
        if event.get("status") == "Downloading" and detail.get("total"):
            layer = (int(detail.get("current") or 0), int(detail["total"]))
            self._layers[str(event.get("id"))] = layer
        elif event.get("status") == "Download complete" and str(event.get("id")) in self._layers:
            total = self._layers[str(event["id"])][1]
            self._layers[str(event["id"])] = (total, total)

    def __str__(self) -> str:
        if not self._layers:
            return ""
        done, total = (sum(each[side] for each in self._layers.values()) for side in (0, 1))
        return f"{done / (1 << 20):.0f} of {total / (1 << 20):.0f} MiB"


class Images:
    """The images of this machine; `folder` holds a lock for each that is being pulled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ensure(self, connection: Connection, wanted: Wanted) -> Image:
        """The image, pulled if its policy asks for it.

        Raises:
            NotDone: the runtime or the registry did not answer, or refused for now.
            Permanent: there is no such image, or the credentials do not open it.
        """
        if wanted.policy is not PullPolicy.ALWAYS:
            found = look(connection, wanted.name)
            if found:
                return found
        if wanted.policy is PullPolicy.NEVER:
            raise _absent(wanted, "its pull policy is Never")
        with self._turn(connection, wanted) as pulled_meanwhile:
            found = look(connection, wanted.name)
            if found and (pulled_meanwhile or wanted.policy is PullPolicy.IF_NOT_PRESENT):
                return found
            pull(connection, wanted)
            found = look(connection, wanted.name)
        if found is None:
            raise _absent(wanted, "it was removed right after its pull")
        return found

    @contextmanager
    def _turn(self, connection: Connection, wanted: Wanted) -> Iterator[bool]:
        """Wait until nobody else pulls the image; whether somebody did meanwhile."""
        key = hashlib.sha256(f"{connection.place.url} {wanted.name}".encode()).hexdigest()[:32]
        stamp, asked_at = self._folder / f"{key}.pulled", time.time()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(self._folder / f"{key}.lock")
        try:
            _acquire(lock, connection, wanted)
            yield stamp.exists() and stamp.stat().st_mtime > asked_at
            stamp.touch()
        finally:
            lock.release()


def look(connection: Connection, name: str) -> Image | None:
    """The image, if it is on the machine."""

    def ask(api: APIClient) -> Image | None:
        inspect: Callable[[str], dict[str, Any]] = api.inspect_image
        try:
            said = inspect(name)
        except (ImageNotFound, NotFound):
            return None
        return Image(said["Id"], str((said.get("Config") or {}).get("User") or ""))

    return connection.read(f"look for the image {name}", ask)


def pull(connection: Connection, wanted: Wanted) -> None:
    """Pull an image, telling how it goes; raises as `Images.ensure` does."""
    auth = _auth(wanted)
    wanted.tell(f"pulling {wanted.name}")
    try:
        with translated(f"pull {wanted.name}", changes=False):
            _follow(connection, wanted, _events(connection, wanted.name, auth))
    except BackendError as error:
        raise judged(error, wanted) from error


def _events(
    connection: Connection, name: str, auth: dict[str, Any] | None
) -> Iterator[Mapping[str, Any]]:
    """What a pull tells, until its end or the deadline.

    It is read in a thread of its own: the client's time limit is for each piece of an answer,
    and a registry that sends a little now and then would never reach it.
    """
    told: SimpleQueue[Mapping[str, Any] | Exception | None] = SimpleQueue()

    def listen() -> None:
        try:
            for event in connection.read(
                f"pull {name}",
                lambda api: api.pull(name, stream=True, decode=True, auth_config=auth),
            ):
                told.put(event)
            told.put(None)
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            told.put(error)

    Thread(target=listen, daemon=True).start()
    while True:
        try:
            event = told.get(timeout=max(0.01, connection.deadline.remaining))
        except Empty:
            raise NotDone(f"{name} was not pulled in time") from None
        if event is None:
            return
        if isinstance(event, Exception):
            raise event
        yield event


def _auth(wanted: Wanted) -> dict[str, Any] | None:
    """Credentials as the client takes them; None has it look up the machine's own.

    A job is never helped out with those: it would get at images that only the operator may.
    """
    credentials = wanted.credentials
    if credentials is not None and credentials.is_for(wanted.name):
        return {"username": credentials.username, "password": credentials.token}
    return {} if wanted.is_of_job else None


def _follow(connection: Connection, wanted: Wanted, events: Iterable[Mapping[str, Any]]) -> None:
    progress, told, told_at = Progress(), "", time.monotonic()
    for event in events:
        if event.get("error"):
            raise NotDone(f"could not pull {wanted.name}: {event['error']}")
        progress.note(event)
        if str(progress) != told and time.monotonic() >= told_at + TELL_SECONDS:
            told, told_at = str(progress), time.monotonic()
            wanted.tell(f"pulling {wanted.name}: {told}")


def _acquire(lock: FileLock, connection: Connection, wanted: Wanted) -> None:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        wanted.tell(f"waiting for {wanted.name}, which is being pulled already")
        try:
            lock.acquire(timeout=connection.deadline.remaining)
        except Timeout as error:
            raise NotDone(
                f"{wanted.name} is being pulled by another spawn, and that takes too long",
                job_caused=wanted.is_of_job,
            ) from error


def judged(error: BackendError, wanted: Wanted) -> BackendError:
    """A pull's failure as the caller should take it: what a job's image does is the job's."""
    is_hopeless = any(each in str(error).lower() for each in _HOPELESS)
    if is_hopeless and wanted.is_of_job:
        hint = "see that the image exists, and that the job's registry credentials open it"
        return Permanent(str(error), hint=hint, job_caused=True)
    return NotDone(str(error), hint=error.hint, job_caused=wanted.is_of_job)


def _absent(wanted: Wanted, why: str) -> NotDone:
    return NotDone(
        f"the image {wanted.name} is not on this machine, and {why}",
        hint="pull or build it here, or choose another `imagePullPolicy`",
        job_caused=wanted.is_of_job,
    )
