"""What a gateway tells Prometheus: declared metrics only, and the same at each gateway."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from kici_scaler.metrics import METRICS, Kind, declared
from kici_scaler.store import counts
from kici_scaler.store.counts import Count
from kici_scaler.store.engine import transaction
from tests.integration.gateway.house import GatewayProcess, House

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module", autouse=True)
def something_to_tell(shared: House) -> None:
    """A failure that was counted, and a start that was timed."""
    with transaction(shared.runtime.engine) as connection:
        counts.add(connection, [Count(declared.SPAWN_FAILURES, ("bare-metal", "true"), 3)])
        connection.exec_driver_sql(
            "INSERT INTO start_timings (scaler, warm, requested_at, reserved_at, registered_at,"
            " started_at) SELECT 'local', false, now() - interval '4 s', now(), now(), now()"
        )


def _families(gateway: GatewayProcess, key: str) -> Iterator[Family]:
    answer = httpx.get(
        f"{gateway.url}/metrics", headers={"Authorization": f"Bearer {key}"}, timeout=20
    )
    assert answer.status_code == 200, answer.text
    return iter(text_string_to_metric_families(answer.text))


def _samples(gateway: GatewayProcess, key: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in _families(gateway, key)
        for sample in family.samples
    }


def test_only_what_is_declared_is_told_with_its_kind_and_labels(
    shared: House, gateway: GatewayProcess
) -> None:
    known = {each.name.removesuffix("_total"): each for each in METRICS}
    for family in _families(gateway, shared.operator):
        metric = known[family.name]
        assert family.type == metric.kind.value
        assert family.documentation == metric.about
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_every_gateway_tells_the_same_of_the_cluster(
    shared: House, gateway: GatewayProcess, second_gateway: GatewayProcess
) -> None:
    told = [
        {
            key: value
            for key, value in _samples(each, shared.operator).items()
            if not key[0].startswith(("kici_gateway_", "kici_orch_gateways"))
        }
        for each in (gateway, second_gateway)
    ]
    assert told[0] == told[1]
    assert told[0]["kici_orch_scaler_spawn_failures_total",
                   (("backend", "bare-metal"), ("bound", "true"))] == 3  # fmt: skip


def test_a_histogram_is_cumulative_and_ends_with_all_of_them(
    shared: House, gateway: GatewayProcess
) -> None:
    found = _samples(gateway, shared.operator)
    name = declared.START_SECONDS.name
    labels = {"scaler": "local", "start": "cold", "step": "reserved"}

    def bucket(bound: str) -> float:
        return found[f"{name}_bucket", tuple(sorted({**labels, "le": bound}.items()))]

    assert (bucket("2.5"), bucket("5.0"), bucket("+Inf")) == (0, 1, 1)
    assert found[f"{name}_count", tuple(sorted(labels.items()))] == 1
    assert found[f"{name}_sum", tuple(sorted(labels.items()))] == pytest.approx(4, abs=0.1)


def test_names_say_what_prometheus_must_know(shared: House, gateway: GatewayProcess) -> None:
    text = httpx.get(
        f"{gateway.url}/metrics", headers={"Authorization": f"Bearer {shared.operator}"}, timeout=20
    ).text
    for metric in METRICS:
        if metric.kind is Kind.COUNTER and metric.known:
            assert f"# TYPE {metric.name} counter" in text
