"""Commands of the machine itself; `kici-scaler` finds them by their entry points."""

from __future__ import annotations

import json
from typing import Annotated

import httpx
import typer

from config.settings import Settings
from kici_scaler.cli import access
from kici_scaler.cli.failures import read_settings
from kici_scaler.cli.files import DropIns
from kici_scaler.cli.output import AsJson
from workers.command_options import ScalerFile, context_here, named_cluster
from workers.reap import reap_orphans as reap

HEALTH_SECONDS = 2.0
"""How long a gateway may take to say that it lives; the reference's number."""

app = typer.Typer(add_completion=False)


@app.command("reap-orphans")
def reap_orphans(
    config: ScalerFile = None,
    directory: DropIns = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do not ask whether a gateway runs here.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what agents left on this machine, without database, Redis or gateway.

    For a machine whose disk is full or whose cluster is gone. What runs is left alone, and so
    is everything of other installations. While a gateway runs here nothing is done: it looks
    after all this itself.

    Example: kici-scaler reap-orphans --config scalers.yaml --json
    """
    settings = read_settings()
    if not force and _gateway_is_healthy(settings):
        _say_skipped(as_json)
        return
    counts = reap(named_cluster(config, directory), context_here(settings))
    _say_reaped(dict(counts), as_json)


def _gateway_is_healthy(settings: Settings) -> bool:
    """Whether the gateway of this machine says so; anything else but a plain yes is a no."""
    profile = access.local_instance()
    url = (profile and profile.gateway_url) or f"http://127.0.0.1:{settings.port}"
    try:
        return httpx.get(f"{url}/healthz", timeout=HEALTH_SECONDS).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _say_skipped(as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"skipped": True, "reason": "orchestrator-healthy", "counts": {}}))
    else:
        typer.echo(
            "A gateway runs here and looks after orphans itself; --force reaps all the same."
        )


def _say_reaped(counts: dict[str, int], as_json: bool) -> None:
    total = sum(counts.values())
    if as_json:
        typer.echo(json.dumps({"skipped": False, "counts": counts, "total": total}))
    elif total == 0:
        typer.echo("No orphans.")
    else:
        typer.echo(f"Reaped {total} orphan resource(s):")
        for name, count in sorted(counts.items()):
            if count:
                typer.echo(f"  {name}: {count}")
