"""The `kici-scaler` command."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from kici_scaler.cli import (
    agents,
    audit,
    config,
    deliveries,
    diagnose,
    doctor,
    drain,
    explain,
    failures,
    health,
    keys,
    reload,
    request,
    requests,
    resume,
    roles,
    scalers,
    settings,
    simulate,
    status,
    up,
    warm,
)
from kici_scaler.cli.installed import WithInstalledCommands

app = typer.Typer(
    name="kici-scaler",
    cls=WithInstalledCommands,
    help="Ephemeral, single-use CI agents on demand.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kici-scaler {version('kici-scaler')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="KICI_DEBUG", help="Show where an error came from.")
    ] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Ephemeral, single-use CI agents on demand."""
    failures.DEBUG.set(debug)


up.register(app)
roles.register(app)
diagnose.register(app)
doctor.register(app)
resume.register(app)
health.register(app)
request.register(app)
status.register(app)
app.add_typer(requests.app, name="requests")
app.add_typer(agents.app, name="agents")
app.add_typer(warm.app, name="warm")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(drain.app, name="drain")
app.add_typer(config.app, name="config")
reload.register(app, config.app)
audit.register(app)
app.add_typer(settings.app, name="settings")
app.add_typer(scalers.app, name="scalers")
app.add_typer(scalers.machines, name="machines")
app.add_typer(keys.app, name="keys")
app.command()(explain.explain)
app.command()(simulate.simulate)


def run() -> None:
    """Entry point of the console script.

    Raises:
        SystemExit: always, with the command's exit code.
    """
    with failures.reported():
        app()


if __name__ == "__main__":
    run()
