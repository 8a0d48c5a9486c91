"""`kici-scaler warm`: agents that are kept ready ahead of demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from kici_scaler.cli import access, render
from kici_scaler.cli.output import AsJson, print_json

if TYPE_CHECKING:
    from kici_scaler.gateway.models_warm import PoolView

app = typer.Typer(help="Agents that are kept ready ahead of demand.", no_args_is_help=True)

COLUMNS = ("scaler", "label set", "target", "ready", "starting", "ending", "outdated", "hits",
           "misses", "avoided", "reaped", "short because")  # fmt: skip


@app.callback()
def _warm() -> None:
    """Agents that are kept ready ahead of demand."""


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show each warm pool: its target now, its agents, hits, misses and what is in its way.

    Misses are agents that had to be started for jobs: of another shape, with an image of their
    own, or when none was ready.

    Example: kici-scaler warm status --json
    """
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.gateway.models_warm import WarmView

    with access.operator() as gateway:
        answer = gateway.get("/v1/warm")
    if as_json:
        print_json(answer)
        return
    found = parsed(WarmView, answer)
    render.print_table(COLUMNS, map(_row, found.pools), empty="no scaler keeps a warm pool")


def _row(pool: PoolView) -> tuple[object, ...]:
    return (pool.scaler, pool.label_set, _target(pool), _ready(pool), pool.in_flight, pool.ending,
            pool.outdated, pool.hits, _misses(pool), pool.cold_starts_avoided, pool.reaped,
            f"{pool.short} missing: {pool.why}" if pool.short else pool.why)  # fmt: skip


def _target(pool: PoolView) -> str:
    return str(pool.target) if pool.target == pool.size else f"{pool.target} (size {pool.size})"


def _ready(pool: PoolView) -> str:
    more = [f"{count} {what}" for count, what in ((pool.static, "static"), (pool.absent, "absent"))
            if count]  # fmt: skip
    return ", ".join([str(pool.ready), *more])


def _misses(pool: PoolView) -> str:
    misses = pool.misses
    kinds = ((misses.shape, "shape"), (misses.image, "image"), (misses.none_ready, "none ready"))
    return ", ".join(f"{count} {what}" for count, what in kinds if count) or "0"
