"""Figures for Prometheus, taken from the rows at the moment they are asked for.

Every gateway tells the same of the cluster, whichever processes come and go; what only
this process knows (its own connections) carries its incarnation.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway.core import Gateway
from kici_scaler.service.status import ClusterStatus


def exposition(gateway: Gateway, status: ClusterStatus) -> bytes:
    """The text of one scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Moment(gateway, status))
    return generate_latest(registry)


class _Moment(Collector):
    """Everything known at one moment."""

    def __init__(self, gateway: Gateway, status: ClusterStatus) -> None:
        self._gateway = gateway
        self._status = status

    def collect(self) -> Iterator[Metric]:
        yield from self._usage()
        yield self._agents()
        yield self._requests()
        yield from self._own()

    def _usage(self) -> Iterator[Metric]:
        labels = ["scaler", "scalerType"]
        cpus = GaugeMetricFamily("kici_orch_scaler_cpus_used", "Reserved CPUs", labels=labels)
        memory = GaugeMetricFamily(
            "kici_orch_scaler_memory_bytes_used", "Reserved bytes of memory", labels=labels
        )
        rows = [(s.scaler.name, s.scaler.type.value, s.tally) for s in self._status.scalers]
        for name, kind, tally in [*rows, ("__global__", "__global__", self._status.tally)]:
            cpus.add_metric([name, kind], tally.held.cpu_millis / 1000)
            memory.add_metric([name, kind], tally.held.memory_bytes)
        yield from (cpus, memory)

    def _agents(self) -> Metric:
        family = GaugeMetricFamily(
            "kici_orch_scaler_agents", "Live agents by state", labels=["scaler", "state"]
        )
        for each in self._status.scalers:
            for state in SpawnState:
                family.add_metric([each.scaler.name, state.value], each.tally.within((state,)))
        return family

    def _requests(self) -> Metric:
        family = GaugeMetricFamily(
            "kici_orch_scale_requests", "Requests that are not over", labels=["state"]
        )
        for state in ("waiting", "assigned", "running"):
            family.add_metric([state], self._status.requests.get(state, 0))
        return family

    def _own(self) -> Iterator[Metric]:
        incarnation = self._gateway.incarnation
        for name, text, value in (
            ("kici_gateway_connected_agents", "Agents connected here",
             len(self._gateway.sessions)),
            ("kici_gateway_log_entries_dropped", "Live log entries given up here so far",
             self._gateway.feed.dropped),
        ):  # fmt: skip
            family = GaugeMetricFamily(name, text, labels=["incarnation"])
            family.add_metric([incarnation], value)
            yield family
        draining = GaugeMetricFamily(
            "kici_orchestrator_draining", "Whether new demand is turned away"
        )
        draining.add_metric([], int(self._status.draining))
        yield draining
