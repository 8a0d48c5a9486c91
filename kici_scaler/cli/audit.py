"""`kici-scaler audit`: what operators did."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from kici_scaler.cli import access
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.cli.render import print_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many of the latest.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List what operators did: when, who, what, to what; the latest first.

    Example: kici-scaler audit --limit 10
    """
    with access.operator() as gateway:
        answer = gateway.get("/v1/audit", {"limit": limit})
    if as_json:
        print_json(answer)
        return
    print_table(
        ("when", "who", "did", "to", "detail"),
        [
            (datetime.fromisoformat(each["at"]), each["actor"], each["action"], each["subject"],
             _detail(each["detail"]))
            for each in answer["entries"]
        ],
        empty="nobody did anything yet",
    )  # fmt: skip


def _detail(detail: Mapping[str, Any]) -> str:
    said = {name: value for name, value in detail.items() if value not in (None, "")}
    return ", ".join(f"{name}: {value}" for name, value in said.items())
