"""Alarms and dashboard speak of metrics that there are, and lead to pages that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kici_scaler.domain.request import WaitCode
from kici_scaler.metrics import METRICS, Kind
from scripts import dashboard
from tests.support.source import ROOT

RULES = ROOT / "config" / "prometheus" / "rules" / "kici-scaler.yml"
TESTS = ROOT / "tests" / "unit" / "config" / "alarms.yml"
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"
_NAME = re.compile(r"\bkici_[a-z0-9_]+")
_SELECTOR = re.compile(r"\b(kici_[a-z0-9_]+)\{([^}]*)\}")
_GROUPED = re.compile(
    r"\bby \(([^)]*)\) \((?:increase\(|rate\()?(?:max without \([^)]*\) \()?(kici_\w+)"
)

KINDS = {each.name: each.kind for each in METRICS}
LABELS = {each.name: {*each.labels} for each in METRICS}


def rules() -> list[dict[str, Any]]:
    """Every alarm."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> dict[str, str]:
    """Every query, by where it stands."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for panel in dashboard.dashboard()["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    return found


def declared(name: str) -> str:
    """The metric behind a series; a histogram has three."""
    for suffix in ("_bucket", "_sum", "_count"):
        base = name.removesuffix(suffix)
        if base != name and KINDS.get(base) is Kind.HISTOGRAM:
            return base
    return name


@pytest.mark.parametrize("place", expressions())
def test_a_query_is_of_metrics_and_labels_that_there_are(place: str) -> None:
    query = expressions()[place]
    for name in _NAME.findall(query):
        assert declared(name) in KINDS, f"{place}: there is no metric {name}"
        bare_histogram = KINDS[declared(name)] is Kind.HISTOGRAM and declared(name) == name
        assert not bare_histogram, f"{place}: {name} has _bucket, _sum and _count"
    for name, selector in _SELECTOR.findall(query):
        for label in re.findall(r"(\w+)[=!~]", selector):
            assert label in LABELS[declared(name)], f"{place}: {name} has no label {label}"
    for labels, name in _GROUPED.findall(query):
        asked = {label.strip() for label in labels.split(",")} - {"le", ""}
        assert asked <= LABELS[declared(name)], f"{place}: {name} has no labels {asked}"


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {declared(name) for query in expressions().values() for name in _NAME.findall(query)}
    assert set(KINDS) <= shown, f"nobody would see {sorted(set(KINDS) - shown)}"


def test_reasons_in_queries_are_ones_that_jobs_wait_for() -> None:
    reasons = set(re.findall(r'requests_waiting\{reason="([^"]*)"', RULES.read_text()))
    assert reasons
    assert reasons <= {code.value for code in WaitCode}


def test_counters_are_never_taken_as_they_stand() -> None:
    for place, query in expressions().items():
        for name in _NAME.findall(query):
            if KINDS[declared(name)] is not Kind.GAUGE:
                assert re.search(r"\b(rate|increase)\(", query), f"{place}: {name}"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alarm_says_whom_it_wakes_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    told = rule["annotations"]
    assert told.keys() == {"summary", "description", "runbook_url"}
    page, _, anchor = told["runbook_url"].partition("#")
    assert page == "{{ $externalLabels.docs }}/troubleshooting.md"
    headings = re.findall(r"^#+ (.+)$", TROUBLESHOOTING.read_text(), re.MULTILINE)
    assert anchor == rule["alert"].lower()
    assert rule["alert"] in headings, f"docs/troubleshooting.md has no section {rule['alert']}"


def test_the_dashboard_is_the_one_that_is_described() -> None:
    assert dashboard.FILE.read_text() == dashboard.text(), "run `make docs`"
    panels = json.loads(dashboard.text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert at["x"] + at["w"] <= dashboard.WIDTH
        assert not taken & cells, f"{panel['title']} lies on another panel"
        taken |= cells


def _promtool(*arguments: str | Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("PROMTOOL IS NOT INSTALLED: rules are only read (Debian: prometheus)")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_itself_takes_the_rules() -> None:
    _promtool("check", "rules", RULES)


def test_prometheus_itself_takes_its_configuration() -> None:
    _promtool("check", "config", "--syntax-only", RULES.parents[1] / "prometheus.yml")


def test_alarms_ring_when_they_should_and_stay_silent_otherwise() -> None:
    _promtool("test", "rules", TESTS)
