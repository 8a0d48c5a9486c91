"""Writes the Grafana dashboard from a short description: `python -m scripts.dashboard`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from scripts.dashboard_panels import Panel
from scripts.dashboard_rows import ROWS

FILE: Final = (
    Path(__file__).resolve().parents[1] / "config" / "grafana" / "dashboards" / "kici-scaler.json"
)
WIDTH: Final = 24
"""Columns of Grafana's grid."""
SOURCE: Final = {"type": "prometheus", "uid": "prometheus"}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": "kici-scaler",
        "title": "kici-scaler",
        "tags": ["ci"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "panels": list(_panels()),
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in ROWS:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [],
               "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y}}  # fmt: skip
        x, y = 0, y + 1
        height = 4 if row.panels[0].kind == "stat" else 8
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            number += 1
            place = {"h": height, "w": panel.width, "x": x, "y": y}
            yield _panel(number, panel, place)
            x += panel.width
        y += height


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": name,
             "datasource": SOURCE}
            for place, (query, name) in enumerate(panel.queries)
        ],
    }  # fmt: skip


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text(), encoding="utf-8")
