"""Whether a machine answers: what its signs of life, and their absence, come to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from workers.errors import BackendError, Untrusted

MOST_MISSED = 2
"""How many looks in a row may fail before a machine that answered counts as out of reach."""

MOST_SKEW_SECONDS = 5.0
"""How far its clock may be off before that is worth a warning."""


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a machine at one moment.

    Attributes:
        boot_id: of the boot that answered last; '' before the first answer.
        skew_seconds: how far its clock is ahead of the worker's.
        why: why it does not answer; '' while it does.
    """

    answers: bool = False
    boot_id: str = ""
    skew_seconds: float = 0.0
    missed: int = 0
    why: str = "not reached yet"

    def after_answer(self, boot_id: str, skew_seconds: float) -> Health:
        """It answered."""
        return Health(True, boot_id, skew_seconds, 0, "")

    def after_miss(self, error: BackendError) -> Health:
        """It did not. One look that came to nothing proves little; a refused key is certain."""
        missed = self.missed + 1
        if self.answers and missed < MOST_MISSED and not isinstance(error, Untrusted):
            return replace(self, missed=missed)
        return replace(self, answers=False, missed=missed, why=sentence_of(error))

    def came_back(self, before: Health) -> bool:
        """Whether it answers and did not, or has been started anew."""
        return self.answers and (not before.answers or self.boot_id != before.boot_id)


def sentence_of(error: BackendError) -> str:
    """What went wrong and what to do, in one line."""
    said = f"{error}; {error.hint}" if error.hint else str(error)
    return " ".join(said.split())
