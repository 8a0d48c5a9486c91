"""The errors a person may meet: what happened, to what, and what to do next."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command; stable, documented in the CLI reference."""

    OK = 0
    """Done."""
    INVALID = 1
    """The request was understood and refused: bad input, failed check."""
    UNREADABLE = 2
    """A file, server or setting could not be read or reached."""
    TIMED_OUT = 124
    """The time that was given for a job passed; it was cancelled. As `timeout` has it."""
    NEVER_RAN = 125
    """A job never ran, or nobody knows how it ended. As `docker run` and `env` have it."""
    INTERRUPTED = 130
    """Ctrl-C."""


class KiciError(Exception):
    """Something the operator can act on.

    Attributes:
        hint: what to do next, one sentence; empty when the message says it all.
        exit_code: what a command ends with when nothing caught the error.
    """

    exit_code: ExitCode = ExitCode.INVALID

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or type(self).__name__).splitlines()[0])
        self.hint = hint


class Unavailable(KiciError):
    """A server this command needs cannot be reached."""

    exit_code = ExitCode.UNREADABLE


class InvalidInput(KiciError):
    """The input breaks a rule; the message names the rule and the place."""


class NotFound(KiciError):
    """Nothing goes by that name."""


class Conflict(KiciError):
    """The thing is in a state that does not allow this."""
