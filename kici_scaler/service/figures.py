"""Every metric of the cluster with its values at one moment; nothing is written."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kici_scaler.domain.scalers import BackendType
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.metrics import METRICS, Kind, Metric, declared
from kici_scaler.service import status, warm_status, watch
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.status import ClusterStatus
from kici_scaler.service.warm_status import WarmStatus
from kici_scaler.store import (
    claims,
    counts,
    delivery_views,
    failovers,
    figures,
    settings,
    warm_books,
)
from kici_scaler.store.counts import CountRow
from kici_scaler.store.engine import snapshot
from kici_scaler.store.observation import LONGEST_GAP_SECONDS
from kici_scaler.store.warm_books import What

Labels = tuple[str, ...]
_COUNTERS = {each.name: each for each in METRICS if each.kind is Kind.COUNTER}
_HISTOGRAMS = {each.name: each for each in METRICS if each.kind is Kind.HISTOGRAM}
_POOL_MISSES = {
    What.MISS_SHAPE: "shape",
    What.MISS_IMAGE: "image",
    What.MISS_NONE_READY: "none-ready",
}


@dataclass(slots=True)
class Distribution:
    """Observations of a histogram: how many fell into each bucket, and their sum."""

    buckets: defaultdict[float, float] = field(default_factory=lambda: defaultdict(float))
    total: float = 0.0

    def cumulative(self, bounds: Iterable[float]) -> list[tuple[float, float]]:
        """How many were at most each bound; the last bound is infinity.

        Buckets that were counted under bounds of an earlier version count where they belong.
        """
        return [
            (bound, sum(n for le, n in self.buckets.items() if le <= bound))
            for bound in (*bounds, float("inf"))
        ]


@dataclass(slots=True)
class Figures:
    """Values by metric and by the values of its labels."""

    values: dict[Metric, dict[Labels, float]] = field(default_factory=dict)
    distributions: dict[Metric, dict[Labels, Distribution]] = field(default_factory=dict)

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a value."""
        metric.check(labels)
        self.values.setdefault(metric, {})[labels] = float(value)

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add to a value."""
        metric.check(labels)
        found = self.values.setdefault(metric, {})
        found[labels] = found.get(labels, 0.0) + value


def read(runtime: Runtime) -> Figures:
    """All that the rows tell.

    Raises:
        DatabaseUnreachable: it cannot be told.
    """
    found = Figures()
    for metric in METRICS:
        for labels in metric.known:
            found.put(metric, 0, *labels)
    _of_cluster(found, status.read(runtime))
    _of_pools(found, warm_status.read(runtime))
    with snapshot(runtime.engine) as connection:
        windows = settings.windows(connection)
        for code, held in figures.waiting_by_code(connection).items():
            found.put(declared.REQUESTS_WAITING, held, code)
        lookout = figures.lookout(
            connection,
            longest_gap=LONGEST_GAP_SECONDS,
            flap_grace=windows.flap_grace_seconds,
        )
        found.put(declared.OLDEST_DUE, lookout.oldest_due_seconds)
        found.put(declared.REAP_BLOCKED, int(not lookout.watching))
        found.put(declared.UNSEEN_PROVISIONS, lookout.unseen_provisions)
        found.put(declared.UNWATCHED, watch.look(connection, windows).unwatched_seconds)
        found.put(declared.HELD_BACK, int(failovers.is_held(connection)))
        for kind, held in figures.deliveries_pending(connection).items():
            found.put(declared.DELIVERIES_PENDING, held, kind)
        found.put(declared.DELIVERIES_DEAD, delivery_views.dead_letters(connection))
        found.put(declared.CLAIMS_REUSED, claims.reused(connection))
        for scaler, delivered, reason, n in delivery_views.counts(connection):
            _of_deliveries(found, scaler, delivered.value, reason, n)
        _of_books(found, warm_books.counts(connection))
        _of_counts(found, counts.read(connection))
    return found


def _of_cluster(found: Figures, cluster: ClusterStatus) -> None:
    everything = declared.CLUSTER
    for each in cluster.scalers:
        name, kind, tally = each.scaler.name, each.scaler.type, each.tally
        found.put(declared.CPUS_USED, tally.held.cpu_millis / 1000, name, kind.value)
        found.put(declared.MEMORY_USED, tally.held.memory_bytes, name, kind.value)
        for state in SpawnState:
            found.put(declared.AGENTS, tally.within((state,)), name, state.value)
        if kind is BackendType.EVENT:
            found.put(declared.PROVISIONS_ACTIVE, tally.active, name)
    held = cluster.tally.held
    found.put(declared.CPUS_USED, held.cpu_millis / 1000, everything, everything)
    found.put(declared.MEMORY_USED, held.memory_bytes, everything, everything)
    found.put(declared.QUARANTINED, cluster.tally.within((SpawnState.QUARANTINED,)))
    for of_requests, n in cluster.requests.items():
        found.put(declared.REQUESTS, n, of_requests)
    found.put(declared.DRAINING, int(cluster.draining))
    for gateway in cluster.gateways:
        found.add(declared.GATEWAYS, 1, "fresh" if gateway.is_fresh else "silent")
    states = Counter(
        (row.backend_type, "silent" if row.state == "up" and not row.is_fresh else row.state)
        for row in cluster.machines
    )
    for backend in {backend for backend, _ in states}:
        for of_machines in ("up", "draining", "unreachable", "silent"):
            found.put(declared.MACHINES, states[backend, of_machines], backend, of_machines)


def _of_pools(found: Figures, warm: WarmStatus) -> None:
    for each in warm.pools:
        pool = (each.key.scaler, each.key.label_set)
        found.put(declared.WARM_TARGET, each.target, *pool)
        found.put(declared.WARM_READY, each.ready, *pool)
        found.put(declared.WARM_IN_FLIGHT, each.in_flight, *pool)


def _of_books(found: Figures, counted: Iterable[warm_books.Count]) -> None:
    simple = {
        What.SPAWN: declared.WARM_SPAWNS,
        What.REAP: declared.WARM_REAPED,
        What.HIT: declared.WARM_HITS,
        What.LOST: declared.WARM_LOST,
    }
    for each in counted:
        if (metric := simple.get(each.what)) is not None:
            found.add(metric, each.n, each.scaler)
        elif (why := _POOL_MISSES.get(each.what)) is not None:
            found.add(declared.WARM_MISSES, each.n, each.scaler, why)


def _of_deliveries(found: Figures, scaler: str, kind: str, reason: str, n: int) -> None:
    if kind == "scale-up":
        found.add(declared.SCALE_UPS, n, scaler)
    else:
        found.add(declared.SCALE_DOWNS, n, scaler, reason)


def _of_counts(found: Figures, rows: Iterable[CountRow]) -> None:
    """Rows of metrics that this version does not know are another version's, and left out."""
    spread: Mapping[str, Metric] = _HISTOGRAMS
    for row in rows:
        if (metric := _COUNTERS.get(row.name)) is not None:
            found.add(metric, row.n, *row.labels)
        elif (metric := spread.get(row.name)) is not None:
            under = found.distributions.setdefault(metric, {})
            its = under.setdefault(row.labels, Distribution())
            if row.le is None:
                its.total += row.n
            else:
                its.buckets[row.le] += row.n
