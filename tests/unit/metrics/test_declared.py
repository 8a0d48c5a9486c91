"""What is declared holds together, and keeps the names that dashboards know."""

from __future__ import annotations

import re

import pytest

from kici_scaler.metrics import METRICS, Carried, Kind, Metric, count, declared

KNOWN_TO_DASHBOARDS = {
    "kici_orch_scaler_config_reloads_total": {"result"},
    "kici_orch_scaler_cpus_used": {"scaler", "scalerType"},
    "kici_orch_scaler_memory_bytes_used": {"scaler", "scalerType"},
    "kici_orch_scaler_spawn_refusals_total": set(),
    "kici_orch_scaler_spawn_failures_total": {"backend", "bound"},
    "kici_orch_scaler_warm_pool_target": {"scaler", "labelSet"},
    "kici_orch_scaler_warm_pool_ready": {"scaler", "labelSet"},
    "kici_orch_scaler_warm_pool_in_flight": {"scaler", "labelSet"},
    "kici_orch_scaler_warm_pool_spawns_total": {"scaler"},
    "kici_orch_scaler_warm_pool_reaped_total": {"scaler"},
    "kici_orch_scaler_cap_lock_failures_total": {"reason"},
    "kici_orch_scaler_redispatch_total": {"trigger"},
    "kici_orch_scaler_scale_up_emitted_total": {"scaler"},
    "kici_orch_scaler_scale_down_emitted_total": {"scaler", "reason"},
    "kici_orch_scaler_external_provision_timeout_total": {"scaler"},
    "kici_orch_scaler_adoption_lookup_failures_total": set(),
    "kici_orch_scaler_external_provisioning_active": {"scaler"},
    "kici_orch_scaler_reap_unseen_provisions": set(),
    "kici_orch_scaler_reap_blocked": set(),
    "kici_orchestrator_draining": set(),
}
"""The reference's metrics and their labels."""

DECLARED = {each.name: each for each in METRICS}


def test_every_name_is_declared_once() -> None:
    assert len(DECLARED) == len(METRICS)


@pytest.mark.parametrize("name", KNOWN_TO_DASHBOARDS)
def test_the_names_and_labels_of_the_reference_are_kept(name: str) -> None:
    assert set(DECLARED[name].labels) == KNOWN_TO_DASHBOARDS[name]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_are_ones_that_prometheus_takes(metric: Metric) -> None:
    assert re.fullmatch(r"kici_[a-z0-9_]+", metric.name)
    assert all(re.fullmatch(r"[a-z][A-Za-z]*", label) for label in metric.labels)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_no_label_holds_what_jobs_bring_with_them(metric: Metric) -> None:
    assert not set(metric.labels) & {"job", "run", "org", "agent", "image", "label"}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_what_is_counted_is_a_counter_and_what_is_looked_at_is_a_gauge(metric: Metric) -> None:
    looked_at = metric.carried in (Carried.BY_ROWS, Carried.BY_GATEWAY)
    assert looked_at == (metric.kind is Kind.GAUGE)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": "kici_things"}, "_total"),
        ({"kind": Kind.GAUGE}, "_total"),
        ({"buckets": (1.0,)}, "histograms"),
        ({"known": (("a", "b"),)}, "one for each label"),
    ],
)
def test_a_contradiction_is_refused(changes: dict[str, object], complaint: str) -> None:
    whole: dict[str, object] = {
        "name": "kici_things_total",
        "kind": Kind.COUNTER,
        "carried": Carried.BY_TALLY,
        "about": "things",
        "labels": ("kind",),
    }
    with pytest.raises(ValueError, match=complaint):
        Metric(**(whole | changes))  # type: ignore[arg-type]  # wrong on purpose


def test_a_value_too_few_for_the_labels_is_refused_where_it_is_counted() -> None:
    with pytest.raises(ValueError, match="reason"):
        count(declared.CAP_LOCK_FAILURES)
