"""What can go wrong with a local installation, each with its next step."""

from __future__ import annotations

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
