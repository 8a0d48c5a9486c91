"""Why a machine cannot be worked with; nothing was done there."""

from __future__ import annotations

from workers.errors import NotDone, Untrusted


class HostKeyRefused(Untrusted):
    """The machine showed a key that is not trusted; it was told nothing.

    Attributes:
        shown: the key it showed, as a line for `hostKey`.
    """

    def __init__(self, message: str, *, shown: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.shown = shown

    def again(self, seconds: float) -> HostKeyRefused:
        """The same, said before that many seconds have passed."""
        said = f"{self}; tried again in {seconds:.0f} s"
        return HostKeyRefused(said, shown=self.shown, hint=self.hint)


class Unusable(NotDone):
    """The machine answers and lacks what a supervisor needs there."""
