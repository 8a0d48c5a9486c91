"""Figures in Prometheus' text format: the cluster's, as every gateway tells them, and its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kici_scaler.gateway.core import Gateway
from kici_scaler.metrics import METRICS, Kind, Metric, declared
from kici_scaler.service.figures import Distribution, Figures, Labels


def exposition(gateway: Gateway, figures: Figures) -> bytes:
    """The text of one scrape; metrics without any value are left out."""
    figures.put(declared.CONNECTED, len(gateway.sessions), gateway.incarnation)
    figures.put(declared.LOG_ENTRIES_DROPPED, gateway.feed.dropped, gateway.incarnation)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Moment(figures))
    return generate_latest(registry)


class _Moment(Collector):
    """Everything known at one moment."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            if values := self._figures.values.get(metric):
                yield _family(metric, values)
            if distributions := self._figures.distributions.get(metric):
                yield _histogram(metric, distributions)


def _family(metric: Metric, values: Mapping[Labels, float]) -> Family:
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.about, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, distributions: Mapping[Labels, Distribution]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.about, labels=metric.labels)
    for labels, each in distributions.items():
        buckets = [
            ("+Inf" if bound == inf else str(float(bound)), n)
            for bound, n in each.cumulative(metric.buckets)
        ]
        family.add_metric(labels, buckets, each.total)
    return family
