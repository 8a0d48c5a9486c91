"""What a pass works on: a bounded part of everything that waits, chosen fairly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.admission import Decision, Refuse
from kici_scaler.domain.request import Waiting
from kici_scaler.service import revisions
from kici_scaler.store import waiting as waiting_rows

PER_QUEUE = 500
"""Of the undecided, of the queue behind one scaler, and of all queues from anywhere in them."""
MOST_HEADS = 1_000
"""Of the queues behind scalers together. To admit one request takes some 0.07 ms on two shared
cores, so a pass over all that it may take stays far within its two seconds even on a database
that is ten times slower."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that are locked, most urgent first."""

    requests: Sequence[Waiting] = ()
    cut: frozenset[str | None] = frozenset()
    """Queues that are longer than what was taken of them: by scaler, None of the undecided."""

    def leaves_more(self, decisions: Iterable[Decision]) -> bool:
        """Whether another pass at once may find more: some of a cut queue left it."""
        return bool(self.cut) and any(
            each.request.routed_scaler in self.cut
            and (each.request.routed_scaler is None or not isinstance(each, Refuse))
            for each in decisions
        )


def lock(
    connection: Connection,
    revision: revisions.Revision,
    job_ids: Sequence[str] = (),
    *,
    share: int = 1,
) -> Batch:
    """The requests that may be decided now.

    Without jobs to begin with, some from anywhere in a queue that is cut come too: those at its
    head may be all of a kind that finds no room.

    Args:
        share: the bounds are divided by it, where the whole took too long.
    """
    per_queue, most = max(1, PER_QUEUE // share), max(1, MOST_HEADS // share)
    names = ["", *(scaler.name for scaler in revision.cluster.scalers)]
    head = waiting_rows.lock_heads(
        connection, job_ids=job_ids, scalers=names, per_queue=per_queue, most=most
    )
    cut = _cut(head, per_queue, most)
    long = [name for name in names if name in cut]
    if job_ids or not long:
        return Batch(head, cut)
    found = {each.job_id: each for each in head}
    for each in waiting_rows.lock_some(
        connection, scalers=long, per_queue=per_queue, most=per_queue
    ):
        found.setdefault(each.job_id, each)
    ordered = sorted(found.values(), key=lambda one: (-one.priority, one.enqueued_at, one.job_id))
    return Batch(ordered, cut)


def _cut(head: Sequence[Waiting], per_queue: int, most: int) -> frozenset[str | None]:
    """Those that are asked for count too: they may be what a queue's part consists of."""
    counted = Counter(each.routed_scaler for each in head)
    shortest = per_queue
    if counted.total() - counted[None] >= most:
        # Queues are taken from in turn, so those that were cut gave the most, or one less.
        shortest = min(shortest, max(counted[name] for name in counted if name is not None) - 1)
    return frozenset(
        name
        for name, count in counted.items()
        if count >= (per_queue if name is None else shortest)
    )
