"""A demand replayed against scaler files, and the answer as tables, plots or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from kici_scaler.cli import access, explain, render
from kici_scaler.cli.files import load_or_end
from kici_scaler.cli.output import print_json
from kici_scaler.domain.quantities import format_memory
from kici_scaler.errors import InvalidInput, Unavailable
from kici_scaler.service.simulate import history, plots, trace
from kici_scaler.service.simulate.assumed import Assumptions
from kici_scaler.service.simulate.course import Course
from kici_scaler.service.simulate.figures import Figures, figures_of
from kici_scaler.service.simulate.run import simulate as run
from kici_scaler.service.simulate.trace import Job

MOST_OF_HISTORY = 1_000
"""As many requests as the gateway lists at once."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be replayed against what, and where its plots go."""

    config: Path
    directory: Path | None
    compare: Path | None
    trace: Path | None
    from_history: bool
    plot: Path | None


def assumptions(
    machine: str | None,
    machines: int,
    spawn_seconds: float,
    boot_seconds: float,
    end_seconds: float,
) -> Assumptions:
    """What is assumed of machines; `machine` is os/arch, None for this one's own."""
    facts = explain.facts_of(machine)
    return Assumptions(facts, machines, spawn_seconds, boot_seconds, end_seconds)


def show(wish: Wish, assumed: Assumptions, *, as_json: bool) -> None:
    """Replay, and print what came of it.

    Raises:
        InvalidInput: there is no demand to replay.
        Unavailable: a file cannot be read or written.
    """
    clusters = {
        str(path): load_or_end(path, drop_ins, as_json=as_json).cluster
        for path, drop_ins in ((wish.config, wish.directory), (wish.compare, None))
        if path is not None
    }
    jobs = _jobs(wish.trace, from_history=wish.from_history)
    courses = {name: run(cluster, jobs, assumed) for name, cluster in clusters.items()}
    if wish.plot is not None:
        _write(wish.plot, courses)
    found = {name: figures_of(course) for name, course in courses.items()}
    if as_json:
        print_json({name: document(figures) for name, figures in found.items()})
        return
    _print(found)
    if wish.plot is not None:
        typer.echo(f"plots are in {wish.plot}")


def _jobs(trace_file: Path | None, *, from_history: bool) -> list[Job]:
    if from_history == (trace_file is not None):
        raise InvalidInput(
            "name the demand: either --trace FILE.csv or --from-history",
            hint="kici-scaler simulate --config scalers.yaml --trace week.csv",
        )
    if trace_file is not None:
        try:
            with trace_file.open(newline="", encoding="utf-8-sig") as source:
                return trace.read(source, str(trace_file))
        except OSError as error:
            raise Unavailable(f"{trace_file}: {error.strerror}") from error
    with access.operator() as gateway:
        answer = gateway.get(
            "/v1/requests", {"state": ["succeeded", "failed"], "limit": MOST_OF_HISTORY}
        )
    jobs = history.jobs_of(answer["requests"])
    if not jobs:
        raise InvalidInput("no job ran lately, as far as the gateway remembers")
    return jobs


def _write(path: Path, courses: Mapping[str, Course]) -> None:
    title = " and ".join(courses)
    drawn = plots.page(courses, title) if path.suffix == ".html" else plots.picture(courses)
    try:
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error


def document(figures: Figures) -> dict[str, Any]:
    """The figures for programs, camelCase."""
    found: dict[str, Any] = _camel({**asdict(figures), "hit_rate": figures.hit_rate})
    found["unserved"] = figures.unserved
    return found


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {_name(key): _camel(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_camel(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


def _name(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(each.capitalize() for each in others)


def _print(found: Mapping[str, Figures]) -> None:
    rows = [_summary(each) for each in found.values()]
    render.print_table(
        ["", *found],
        [(name, *(row[name] for row in rows)) for name in rows[0]],
        empty="",
    )
    for name, figures in found.items():
        of = f" with {name}" if len(found) > 1 else ""
        _print_scalers(figures, of)
        _print_caps(figures, of)


def _summary(each: Figures) -> dict[str, str]:
    waits = each.waits
    return {
        "jobs": str(each.jobs),
        "that ran": str(each.served),
        "wait, half of them": _seconds(waits.p50),
        "wait, 90 %": _seconds(waits.p90),
        "wait, 99 %": _seconds(waits.p99),
        "longest wait": _seconds(waits.most),
        "warm hits": f"{each.hit_rate:.0%}",
        "agents stood ready": f"{each.idle_seconds / 3600:.1f} h",
        "CPUs stood ready": f"{each.idle_cpu_seconds / 3600:.1f} CPU hours",
        "jobs ran": f"{each.busy_seconds / 3600:.1f} h",
        "most agents at once": str(each.peak_agents),
        "most CPUs held": f"{each.peak_cpu_millis / 1000:g}",
        "most memory held": format_memory(each.peak_memory_bytes),
        "most jobs that waited": str(each.peak_waiting),
        "lasted": f"{each.lasted_seconds / 3600:.2f} h",
    }


def _print_scalers(figures: Figures, of: str) -> None:
    typer.echo(f"scalers{of}")
    render.print_table(
        ["scaler", "jobs", "warm hits", "most agents", "wait, half", "wait, 99 %", "longest"],
        [
            (each.scaler, each.jobs, each.warm_hits, each.peak_agents,
             _seconds(each.waits.p50), _seconds(each.waits.p99), _seconds(each.waits.most))
            for each in figures.scalers
        ],
        empty="no scaler served a job",
    )  # fmt: skip


def _print_caps(figures: Figures, of: str) -> None:
    typer.echo(f"caps that jobs waited for{of}")
    render.print_table(
        ["cap", "jobs", "all their waiting"],
        [(each.cap, each.jobs, f"{each.job_seconds / 3600:.2f} h") for each in figures.caps],
        empty="none",
    )
    if figures.unserved:
        render.print_table(
            ["jobs that never ran", "because"],
            [(count, why) for why, count in figures.unserved.items()],
            empty="",
        )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.1f} min"
