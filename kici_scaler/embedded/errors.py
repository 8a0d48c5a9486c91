"""What can go wrong with a local installation, each with its next step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kici_scaler.errors import Conflict, ExitCode, KiciError, Unavailable


class NotInstalled(Unavailable):
    """The embedded servers are not installed."""


class UnusableFolder(KiciError):
    """The data folder cannot be used."""

    exit_code = ExitCode.UNREADABLE


class OtherVersion(UnusableFolder):
    """The data folder belongs to another version of a server."""


class FolderInUse(Conflict):
    """Another instance works on the data folder."""


class PortInUse(Conflict):
    """Another program listens on the port."""


class LeftoverServer(Conflict):
    """A server of an earlier run cannot be ended."""


class StartFailed(Unavailable):
    """A process did not become ready."""


class StartInterrupted(KiciError):
    """Stopped before everything was ready."""

    exit_code = ExitCode.INTERRUPTED


class NotRunning(Conflict):
    """The installation does not run."""


@contextmanager
def told_of(home: Path) -> Iterator[None]:
    """Say of a full disk, a missing permission and the like which data folder it concerns.

    Raises:
        UnusableFolder: the system refused something in there.
    """
    try:
        yield
    except OSError as error:
        raise UnusableFolder(
            f"the data folder {home} cannot be used: {error.strerror}: {error.filename}",
            hint="Correct that, or choose another folder with --data-dir.",
        ) from error
