"""The words that a dashboard is described in: rows, panels, and their queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OVER_GATEWAYS: Final = "without (instance, job)"
"""Every gateway tells the cluster's figures; one of them is enough."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: queries with the name of each line, what it shows, how wide it is."""

    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def gauge(name: str, by: str = "") -> str:
    """A figure of the cluster; `by` keeps some of its labels."""
    return f"max by ({by}) ({name})" if by else f"max({name})"


def rate(name: str, by: str = "") -> str:
    """How often something happens a second."""
    counted = f"rate(max {OVER_GATEWAYS} ({name})[$__rate_interval:])"
    return f"sum by ({by}) ({counted})" if by else f"sum({counted})"


def quantile(share: float, start: str, step: str) -> str:
    """How long the slowest but for `share` of the starts take, by scaler."""
    name = f'kici_orch_start_seconds_bucket{{start="{start}",step="{step}"}}'
    counted = f"rate(max {OVER_GATEWAYS} ({name})[$__rate_interval:])"
    return f"histogram_quantile({share}, sum by (le, scaler) ({counted}))"


def slow(title: str, start: str, step: str, about: str) -> Panel:
    """How long one step of starting takes: half of them, and all but one in twenty."""
    lines = tuple((quantile(share, start, step), f"{{{{scaler}}}} p{share * 100:.0f}")
                  for share in (0.5, 0.95))  # fmt: skip
    return Panel(title, about, lines, unit="s")
