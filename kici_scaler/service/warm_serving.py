"""Jobs given to agents that are ready, and what is counted of it; inside the section."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from kici_scaler.domain.admission import Admit, Bind
from kici_scaler.domain.resources import same_shape
from kici_scaler.domain.scalers import Cluster
from kici_scaler.service.warm_pools import key_of, shape_of, sized
from kici_scaler.store import warm, warm_books
from kici_scaler.store.warm import Binding, Bound
from kici_scaler.store.warm_books import Count, What


def bind(connection: Connection, binds: Sequence[Bind], *, offer_seconds: float) -> list[Bound]:
    """Give the jobs away; those that were not got still wait."""
    if not binds:
        return []
    bindings = [
        Binding(
            each.request.job_id,
            each.request.run_id,
            each.request.org,
            each.agent.agent_id,
            each.agent.like.scaler,
            each.agent.like.label_set,
        )
        for each in binds
    ]
    return warm.bind(connection, bindings, offer_seconds=offer_seconds)


def count_misses(connection: Connection, cluster: Cluster, admits: Sequence[Admit]) -> None:
    """Count the agents that are started although their label set keeps some ready."""
    warm_books.count(
        connection,
        (
            Count(*key_of(each.scaler, each.label_set), _why_missed(cluster, each))
            for each in admits
            if sized(each.label_set)
        ),
    )


def _why_missed(cluster: Cluster, admit: Admit) -> What:
    if admit.request.image is not None:
        return What.MISS_IMAGE
    if not same_shape(admit.request.declared, shape_of(cluster, admit.label_set)):
        return What.MISS_SHAPE
    return What.MISS_NONE_READY
