"""Getting a machine ready for the scalers in force, and saying which ones it cannot run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from kici_scaler.domain.scalers import BackendType, Scaler
from kici_scaler.service import machine_life
from kici_scaler.service.machine_life import Duties
from kici_scaler.service.runtime import Runtime
from workers.contract import Backend, Deadline, Finding, Severity
from workers.errors import BackendError

log = structlog.get_logger(__name__)

PREPARE_SECONDS = 120.0
RETRY_SECONDS = 30.0
"""How soon a scaler that could not be run is looked at again."""
LONGEST_REASON = 300
NONE = -1
"""No revision."""


@dataclass(slots=True)
class Preparer:
    """Prepares a backend whenever the configuration changed, and while something is wrong.

    Only its own thread calls it. Nothing it does touches compute that lives.

    Args:
        serves: the scalers that this worker is limited to; None is all of its type.
        fleet_machine: the machine of a fleet that it prepares; None for the worker's own host.
        now: a clock for pauses, in seconds.
    """

    runtime: Runtime
    backend: Backend
    kind: BackendType
    serves: Collection[str] | None = None
    fleet_machine: str | None = None
    now: Callable[[], float] = time.monotonic
    degraded: Mapping[str, str] = field(default_factory=dict, init=False)
    """Why scalers in force cannot be run here, by name."""
    _ready_for: Duties = field(default=Duties(NONE), init=False)
    _retry_at: float = field(default=0.0, init=False)
    _warned: set[Finding] = field(default_factory=set, init=False)

    def begin(self) -> None:
        """Prepare for the first time.

        Raises:
            BackendError: nothing could be prepared, so this worker is of no use.
        """
        wanted = self._news() or self._ready_for
        failed = self._prepare(wanted)
        if failed is not None and len(self.degraded) == len(wanted.scalers):
            raise failed

    def look(self) -> None:
        """Prepare anew if the configuration changed, or something that failed is to be retried."""
        news = self._news()
        if news is not None and news.same_as(self._ready_for):
            self._ready_for, news = news, None
        if news is None and not (self.degraded and self.now() >= self._retry_at):
            return
        self._prepare(news or self._ready_for)

    def _news(self) -> Duties | None:
        known = self._ready_for.revision_id
        return machine_life.duties(
            self.runtime, self.kind, self.serves, known=known, machine=self.fleet_machine
        )

    def _prepare(self, wanted: Duties) -> BackendError | None:
        """Fill in `degraded`; returns what preparing for all of them at once ran into."""
        deadline = Deadline.after(PREPARE_SECONDS)
        everyone = (*wanted.scalers, *wanted.leaving)
        failed = self._failure_of(everyone, deadline)
        found: dict[str, str] = {}
        if failed is not None:
            found |= self._each_alone(wanted.scalers, self._failure_of, deadline)
            # Preparing for one alone may undo what all of them need together.
            failed = self._failure_of(everyone, deadline)
            if failed is not None and not found:
                found = {each.name: sentence(failed) for each in wanted.scalers}
        good = [each for each in wanted.scalers if each.name not in found]
        if self._objection_to(good, deadline) is not None:
            found |= self._each_alone(good, self._objection_to, deadline)
        self._tell(wanted, found)
        self.degraded = found
        self._ready_for = wanted
        self._retry_at = self.now() + RETRY_SECONDS
        return failed

    def _each_alone(
        self,
        scalers: Collection[Scaler],
        judge: Callable[[Collection[Scaler], Deadline], BackendError | None],
        deadline: Deadline,
    ) -> Iterator[tuple[str, str]]:
        for scaler in scalers:
            problem = judge([scaler], deadline)
            if problem is not None:
                yield scaler.name, sentence(problem)

    def _failure_of(self, scalers: Collection[Scaler], deadline: Deadline) -> BackendError | None:
        try:
            self.backend.prepare(tuple(scalers), deadline)
        except BackendError as error:
            return error
        return None

    def _objection_to(self, scalers: Collection[Scaler], deadline: Deadline) -> BackendError | None:
        """What a check of these finds that keeps agents from starting."""
        try:
            found = self.backend.check(tuple(scalers), deadline)
        except BackendError as error:
            return error
        self._warn(found)
        errors = [f"{e.subject}: {e.message}" for e in found if e.severity is Severity.ERROR]
        hints = [e.hint for e in found if e.severity is Severity.ERROR]
        return BackendError("; ".join(errors), hint=hints[0]) if errors else None

    def _warn(self, found: Sequence[Finding]) -> None:
        """Say once what works, but perhaps not as meant."""
        for each in found:
            if each.severity is Severity.WARNING and each not in self._warned:
                self._warned.add(each)
                log.warning(each.message, subject=each.subject, hint=each.hint)

    def _tell(self, wanted: Duties, found: Mapping[str, str]) -> None:
        for each in wanted.scalers:
            before, now = self.degraded.get(each.name), found.get(each.name)
            if now is not None and now != before:
                log.error("scaler cannot run on this machine", scaler=each.name, reason=now)
            elif now is None and before is not None:
                log.info("scaler can run on this machine again", scaler=each.name)


def sentence(error: BackendError) -> str:
    """What went wrong and what to do, in one line that fits a status page."""
    said = f"{error}; {error.hint}" if error.hint else str(error)
    line = " ".join(said.split())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"
