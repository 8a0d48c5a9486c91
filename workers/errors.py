"""What a failed backend call lets its caller conclude.

A backend raises one of these and nothing else. The class is the message to the caller,
the text is the message to the operator.

| error | was it done? | the caller may |
| --- | --- | --- |
| `NotOwner` | not by this call | stop; a newer lease owns the compute |
| `NotDone` | certainly not | try again, or give the reservation back |
| `OutcomeUnknown` | perhaps | look (inventory), or repeat the same call |
| `Permanent` | certainly not, or it is already over | give up on this agent |
"""

from __future__ import annotations

from collections.abc import Sequence

from kici_scaler.errors import KiciError
from workers.compute import FoundCompute


class BackendError(KiciError):
    """A backend call failed.

    Attributes:
        job_caused: the job brought the failure on itself (its own image, credentials or
            resources), so it says nothing about the health of the scaler.
        log_tail: the last lines the agent printed, oldest first; empty when it printed none.
    """

    def __init__(
        self,
        message: str = "",
        *,
        hint: str = "",
        job_caused: bool = False,
        log_tail: Sequence[str] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.job_caused = job_caused
        self.log_tail = tuple(log_tail)


class NotOwner(BackendError):
    """A call with a newer lease token has been here; this one did nothing."""


class NotDone(BackendError):
    """It certainly did not happen, and nothing of it was left behind; it may be tried again."""


class Refused(NotDone):
    """The machine understood what was asked, and said no."""


class Missing(Refused):
    """What was to be changed is not there."""


class Unreachable(NotDone):
    """The machine could not be reached at all, so nothing was done there.

    It says nothing about the scaler whose agent was to run on it.
    """

    def again(self, seconds: float) -> Unreachable:
        """The same, said before that many seconds have passed."""
        return Unreachable(f"{self}; tried again in {seconds:.0f} s", hint=self.hint)


class Untrusted(Unreachable):
    """What answered in the machine's place could not prove to be it."""


class PartlyListed(NotDone):
    """An inventory of several places lacks some of them.

    Attributes:
        found: what the others hold; that something is missing in it proves nothing.
    """

    def __init__(self, message: str, *, hint: str = "", found: Sequence[FoundCompute] = ()) -> None:
        super().__init__(message, hint=hint)
        self.found = tuple(found)


class OutcomeUnknown(BackendError):
    """It may have happened; look before concluding anything."""


class Permanent(BackendError):
    """It did not happen, or is already over, and repeating the call cannot change that."""


class UnknownBackend(KiciError):
    """No installed package provides a backend of that type."""
