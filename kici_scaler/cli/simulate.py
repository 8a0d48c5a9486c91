"""`kici-scaler simulate`: what a configuration would make of a demand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from kici_scaler.cli.files import DropIns
from kici_scaler.cli.output import AsJson
from kici_scaler.errors import InvalidInput

Config = Annotated[
    Path,
    typer.Option(envvar="KICI_SCALER_CONFIG_PATH", help="The scaler file to try.", metavar="PATH"),
]
Trace = Annotated[
    Path | None,
    typer.Option("--trace", help="Demand as CSV: time,labels,duration,...", metavar="FILE"),
]
FromHistory = Annotated[
    bool, typer.Option("--from-history", help="Take the jobs that ran lately instead.")
]
Compare = Annotated[
    Path | None, typer.Option(help="Another scaler file, shown beside.", metavar="PATH")
]
Plot = Annotated[
    Path | None, typer.Option(help="Write plots there: .svg or .html.", metavar="FILE")
]
Machine = Annotated[
    str | None, typer.Option(help="What machines are: os/arch. This machine's own unless given.")
]
Machines = Annotated[int, typer.Option(min=1, max=1_000, help="How many hosts run workers.")]
_SECONDS: Final = {"min": 0, "max": 3_600}
SpawnSeconds = Annotated[
    float, typer.Option(**_SECONDS, help="How long a start keeps its spawn slot.")
]
BootSeconds = Annotated[
    float, typer.Option(**_SECONDS, help="From then until the agent is connected.")
]
EndSeconds = Annotated[
    float, typer.Option(**_SECONDS, help="From a job's end until its capacity is free.")
]


def simulate(
    config: Config,
    directory: DropIns = None,
    trace_file: Trace = None,
    from_history: FromHistory = False,
    compare: Compare = None,
    plot: Plot = None,
    machine: Machine = None,
    machines: Machines = 1,
    spawn_seconds: SpawnSeconds = 2.0,
    boot_seconds: BootSeconds = 5.0,
    end_seconds: EndSeconds = 3.0,
    as_json: AsJson = False,
) -> None:
    """Replay a demand against a scaler file: waits, caps that were hit, warm hits, what idles.

    Decisions are those of production; how long agents take to start and end is assumed, and
    nothing fails. Time is simulated, no server is needed (`--from-history` asks the gateway).

    Example: kici-scaler simulate --config scalers.yaml --trace week.csv --plot week.html

    Example: kici-scaler simulate --config scalers.yaml --compare larger.yaml --from-history
    """
    if plot is not None and plot.suffix not in (".svg", ".html"):
        raise InvalidInput(f"--plot {plot}: write a file that ends in .svg or .html")
    # What decides is not loaded for commands that only ask a gateway.
    from kici_scaler.cli import simulated

    simulated.show(
        simulated.Wish(config, directory, compare, trace_file, from_history, plot),
        simulated.assumptions(machine, machines, spawn_seconds, boot_seconds, end_seconds),
        as_json=as_json,
    )
