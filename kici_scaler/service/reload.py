"""A new configuration takes over: plan, validate, commit, and let what left drain.

Everything happens in one transaction that holds the admission lock, so every decision is
made under one revision from start to end, and intake waits for it no longer than for any
other admission.

Crash table (`kill -9` at ...):
- before COMMIT: nothing changed, for nobody.
- after COMMIT, before the hints: the new revision is active for everybody; the sweep repeats
  the hints.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import Connection, Engine

from kici_scaler.checkpoints import reached
from kici_scaler.domain.reload import Bucket, ReloadPlan, plan_reload
from kici_scaler.domain.scalers import Cluster
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.errors import Conflict, InvalidInput
from kici_scaler.scalers_file import LoadedFile, load, load_document
from kici_scaler.service import admit, counting, ending, handover, revisions, situations
from kici_scaler.service.handover import HandedOver
from kici_scaler.service.revisions import Revision
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import audit, retiring, section, settings
from kici_scaler.store import revisions as revision_rows
from kici_scaler.store.engine import Contended, snapshot, transaction
from kici_scaler.store.revisions import RevisionRow

SECTION_SECONDS = 10.0
"""A reload may wait longer for its turn than an admission; it holds the lock as briefly."""


class ReloadRejected(InvalidInput):
    """The new configuration cannot take over; nothing changed.

    Attributes:
        reasons: everything that stands against it, a sentence each.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(
            "the reload is rejected: " + "; ".join(reasons),
            hint="nothing was changed; correct the configuration and reload again",
        )
        self.reasons = tuple(reasons)


class ReloadOvertaken(Conflict):
    """Another reload took over meanwhile; nothing of this one was applied."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A validated configuration on its way in, and the revision it was planned against."""

    document: Mapping[str, object]
    digest: str
    cluster: Cluster
    source: str
    warnings: tuple[str, ...] = ()
    expected: int | None = field(default=None)
    """Refuse when another revision is active by then; None takes over from whatever is."""

    @classmethod
    def of(cls, loaded: LoadedFile, source: str, expected: int | None = None) -> Candidate:
        """From a file that was read."""
        warnings = tuple(str(each) for each in loaded.warnings)
        return cls(loaded.document, loaded.digest, loaded.cluster, source, warnings, expected)


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload did, or (`applied` False) would do."""

    revision_id: int
    plan: ReloadPlan
    warnings: tuple[str, ...]
    applied: bool
    drained: Mapping[str, Mapping[SpawnState, int]] = field(default_factory=dict)
    """Live spawns by scaler that leaves the file and by state, just before."""
    unserved: tuple[str, ...] = ()
    """A sentence for each new scaler that nothing can serve yet."""


def read(engine: Engine, path: Path, directory: Path | None = None) -> Candidate:
    """Read and validate a scaler file, to be planned against what is active now.

    Raises:
        InvalidScalerFile, UnreadableScalerFile: nothing changed.
    """
    with transaction(engine) as connection:
        expected = revision_rows.active_id(connection)
    with counting.reload_result(only_failure=True):
        return Candidate.of(load(path, directory), str(path), expected)


def of_document(engine: Engine, document: Mapping[str, object], source: str) -> Candidate:
    """Validate a configuration that arrived as data, to be planned against what is active now.

    Raises:
        InvalidScalerFile: nothing changed.
    """
    with transaction(engine) as connection:
        expected = revision_rows.active_id(connection)
    with counting.reload_result(only_failure=True):
        return Candidate.of(load_document(document, source), source, expected)


def history(engine: Engine, limit: int = 50) -> list[RevisionRow]:
    """Accepted configurations, newest first."""
    with transaction(engine) as connection:
        return revision_rows.history(connection, limit)


def shown(engine: Engine, revision_id: int) -> tuple[Mapping[str, object], ReloadPlan]:
    """A configuration in full, and what it changed from the one accepted before it.

    Raises:
        NotFound: there is no such revision.
    """
    with transaction(engine) as connection:
        document = revision_rows.document(connection, revision_id)
        after = revisions.by_id(connection, revision_id).cluster
        earlier = revision_rows.before(connection, revision_id)
        before = revisions.EMPTY if earlier is None else revisions.by_id(connection, earlier)
    return document, _differences(before, after)


def plan(engine: Engine, candidate: Candidate) -> Reloaded:
    """What `apply` would do; the database refuses to write in its transaction.

    Raises:
        ReloadRejected: it would be rejected.
    """
    with snapshot(engine) as connection:
        current = revisions.active(connection)
        planned = _plan(connection, current, candidate)
        drained = retiring.live_counts(connection, planned.named(Bucket.REMOVED))
        machines = situations.machines_seen(connection, settings.windows(connection))
    return Reloaded(
        current.id,
        planned,
        candidate.warnings,
        applied=False,
        drained=drained,
        unserved=tuple(handover.unserved(planned, candidate.cluster, machines)),
    )


def apply(runtime: Runtime, candidate: Candidate, *, author: str) -> Reloaded:
    """Make the candidate the active revision.

    Raises:
        ReloadRejected: everything that stands against it, at once; nothing changed.
        ReloadOvertaken: another reload won; nothing changed.
        Contended: the section was never free, or others' locks stood in the way; nothing changed.
        CommitUnknown: look at the active revision; reloading the same again is safe.
    """
    with counting.reload_result():
        done, handed_over = _apply_in_turn(runtime, candidate, author)
    reached("reload.committed")
    if handed_over is not None:
        for each in handed_over.effects:
            ending.announce(runtime, each)
        admit.announce(runtime, handed_over.decided)
        runtime.hints.admit()
        runtime.hints.fill()
    return done


def _apply_in_turn(
    runtime: Runtime, candidate: Candidate, author: str
) -> tuple[Reloaded, HandedOver | None]:
    give_up = time.monotonic() + SECTION_SECONDS
    while True:
        try:
            with transaction(runtime.engine) as connection:
                done = _apply(connection, runtime.owner, candidate, author)
                reached("reload.prepared")
        except Contended:
            if time.monotonic() > give_up:
                raise
        else:
            return done


def _apply(
    connection: Connection, owner: str, candidate: Candidate, author: str
) -> tuple[Reloaded, HandedOver | None]:
    section.enter(connection, bound_seconds=SECTION_SECONDS)
    current = revisions.active(connection)
    if current.id and revision_rows.active_digest(connection) == candidate.digest:
        unchanged = plan_reload(current.cluster, current.cluster)
        return Reloaded(current.id, unchanged, candidate.warnings, applied=False), None
    _refuse_overtaken(candidate, current.id)
    planned = _plan(connection, current, candidate)
    drained = retiring.live_counts(connection, planned.named(Bucket.REMOVED))
    revision_id = revision_rows.activate(
        connection,
        document=candidate.document,
        digest=candidate.digest,
        source=candidate.source,
        author=author,
        summary=planned.summary,
    )
    after = Revision(revision_id, candidate.cluster)
    handed_over = handover.carry_out(connection, owner, current, after, planned)
    detail = {"source": candidate.source, "changes": planned.summary}
    audit.record(connection, author, "reload", f"revision {revision_id}", detail)
    done = Reloaded(
        revision_id,
        planned,
        candidate.warnings,
        applied=True,
        drained=drained,
        unserved=handed_over.unserved,
    )
    return done, handed_over


def roll_back(runtime: Runtime, revision_id: int, *, author: str) -> Reloaded:
    """Activate the document of an earlier revision again, as a new revision.

    Raises:
        NotFound: there is no such revision.
        InvalidScalerFile: this version accepts that document no longer; nothing changed.
        ReloadRejected, ReloadOvertaken: as for `apply`.
    """
    with transaction(runtime.engine) as connection:
        document = revision_rows.document(connection, revision_id)
    candidate = of_document(runtime.engine, document, f"rollback to revision {revision_id}")
    return apply(runtime, candidate, author=author)


def _refuse_overtaken(candidate: Candidate, current: int) -> None:
    if candidate.expected is not None and candidate.expected != current:
        raise ReloadOvertaken(
            f"revision {current} took over while this configuration was being read",
            hint="look at `kici-scaler config history`, then reload again",
        )


def _differences(before: Revision, after: Cluster, leaving: Collection[str] = ()) -> ReloadPlan:
    """The plan from one to the other; the first has nothing to differ from but its scalers."""
    planned = plan_reload(before.cluster, after, leaving)
    return planned if before.id else replace(planned, cluster=())


def _plan(connection: Connection, current: Revision, candidate: Candidate) -> ReloadPlan:
    leaving = retiring.with_agents(connection)
    planned = _differences(current, candidate.cluster, leaving)
    rejections = [*planned.rejections, *_changed_types(connection, leaving, candidate.cluster)]
    if rejections:
        raise ReloadRejected(rejections)
    return planned


def _changed_types(connection: Connection, leaving: Mapping[str, int], new: Cluster) -> list[str]:
    """Scalers that come back under another type while agents of the old one still live."""
    found = []
    for name, revision_id in leaving.items():
        before = revisions.by_id(connection, revision_id).cluster.scaler(name)
        after = new.scaler(name)
        if before is not None and after is not None and before.type is not after.type:
            found.append(
                f"scaler {name!r} still retires as {before.type}; it cannot come back as"
                f" {after.type}: wait until it is gone, or give the new one a new name"
            )
    return found
