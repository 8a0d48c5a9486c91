"""What a dispatcher's client may run into."""

from __future__ import annotations

from collections.abc import Mapping

from kici_scaler.errors import ExitCode, KiciError


class ClientError(KiciError):
    """The scaler did not do what was asked.

    Attributes:
        problems: what is wrong at which place, one mapping each, where the scaler tells.
    """

    problems: tuple[Mapping[str, object], ...] = ()


class Unanswered(ClientError):
    """No answer came in time; what was asked may have happened or not.

    Asking again with the same job id is safe: it makes one request.
    """

    exit_code = ExitCode.UNREADABLE


class NotAllowed(ClientError):
    """The API key is missing, unknown, or not good for this."""


class Rejected(ClientError):
    """The scaler understood and refused; asking again changes nothing."""


class UnknownJob(ClientError):
    """The scaler has no request for that job."""


class StillGoing(ClientError, TimeoutError):
    """The job was not over in the time the caller gave it; it goes on."""


class BadAnswer(ClientError):
    """The answer is not one this client understands; is the URL that of a gateway?"""
