"""Shapes of warm pools and of agents that wait for a job, camelCase on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from kici_scaler.domain.prespawned import Misfit
from kici_scaler.gateway.models import Shape
from kici_scaler.service.warm_status import PoolStatus, WarmStatus
from kici_scaler.store.warm_books import What


class MissCounts(Shape):
    """Agents that were started although their label set keeps some ready, by the reason."""

    shape: int
    """The job declared another size."""
    image: int
    """The job brought an image of its own."""
    none_ready: int
    """No agent was ready at that moment."""


class PoolView(Shape):
    """The warm pool of one label set. `size` is what the file says without its schedules,
    `target` what counts now; `short` of it are missing, for the reason in `why`."""

    scaler: str
    label_set: str
    size: int
    target: int
    ready: int
    static: int
    outdated: int
    absent: int
    in_flight: int
    ending: int
    short: int
    why: str
    hits: int
    misses: MissCounts
    cold_starts_avoided: int
    spawned: int
    reaped: int

    @classmethod
    def of(cls, pool: PoolStatus) -> Self:
        """From what was read."""
        counted = pool.counted
        return cls(
            scaler=pool.key.scaler,
            label_set=pool.key.label_set,
            size=pool.size,
            target=pool.target,
            ready=pool.ready,
            static=pool.static,
            outdated=pool.outdated,
            absent=pool.absent,
            in_flight=pool.in_flight,
            ending=pool.ending,
            short=pool.short,
            why=pool.why,
            hits=pool.hits,
            misses=MissCounts(
                shape=counted.get(What.MISS_SHAPE, 0),
                image=counted.get(What.MISS_IMAGE, 0),
                none_ready=counted.get(What.MISS_NONE_READY, 0),
            ),
            cold_starts_avoided=pool.cold_starts_avoided,
            spawned=counted.get(What.SPAWN, 0),
            reaped=counted.get(What.REAP, 0),
        )


class WarmView(Shape):
    """Every warm pool at one moment, in the order of the file."""

    at: datetime
    pools: list[PoolView]

    @classmethod
    def of(cls, found: WarmStatus) -> Self:
        """From what was read."""
        return cls(at=found.at, pools=[PoolView.of(each) for each in found.pools])


class PrespawnedView(Shape):
    """Whether an agent was started ahead of demand and still has no job."""

    agent_id: str
    prespawned: bool


class ServesView(Shape):
    """Whether such an agent may be given a job; `obstacle` is the first thing in the way."""

    agent_id: str
    serves: bool
    obstacle: Misfit | None
