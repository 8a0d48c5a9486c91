"""`kici-scaler explain`: where a job would run, or is, and why nowhere.

Of a job that was requested the gateway is asked; of any other a scaler file, without a server.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kici_scaler.cli.explain_job import explain_job
from kici_scaler.cli.files import load_or_end
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.domain.explain import Explanation, Miss
from kici_scaler.domain.explain import explain as explanation_of
from kici_scaler.domain.labels import MachineFacts, agent_labels, canonical, label_problem
from kici_scaler.domain.quantities import format_cpus, format_memory
from kici_scaler.domain.resources import BadResources, parse_resources
from kici_scaler.domain.routing import Route, RoutingTable, Wanted
from kici_scaler.domain.scalers import Cluster, Resources, Role
from kici_scaler.errors import ExitCode, InvalidInput

_TWO_WAYS = "kici-scaler explain JOB, or kici-scaler explain --config FILE --labels linux"


def explain(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="A job that was requested.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(envvar="KICI_SCALER_CONFIG_PATH", help="The scaler file.", metavar="PATH"),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", envvar="KICI_SCALER_CONFIG_DIR", help="Folder of drop-ins."),
    ] = None,
    labels: Annotated[str, typer.Option(help="What the job asks for: linux,gpu.")] = "",
    exclude: Annotated[str, typer.Option(help="Labels its agent must not offer.")] = "",
    cpus: Annotated[float | None, typer.Option(help="CPUs the job declares.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory it declares: 512m, 4Gi.")] = None,
    image: Annotated[str | None, typer.Option(help="The job's own container image.")] = None,
    role: Annotated[Role | None, typer.Option(help="Work besides ordinary jobs.")] = None,
    machine: Annotated[
        str | None,
        typer.Option(help="What machines are: os/arch. This machine's own unless given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show why a job waits or where it went; or who would serve one, and why others do not.

    With JOB the gateway is asked, and options are for nothing. Without it a scaler file tells
    which scaler and label set would serve a job of these labels. Ends with 0 when something
    serves the job, or did, with 1 when nothing does.

    Example: kici-scaler explain job-4f1d

    Example: kici-scaler explain --config scalers.yaml --labels linux,gpu --cpus 4
    """
    if job_id is not None:
        explain_job(job_id, as_json=as_json)
        return
    if config is None:
        raise InvalidInput("name a job that was requested, or a scaler file", hint=_TWO_WAYS)
    wanted = Wanted.of(
        _labels(labels),
        _labels(exclude),
        role=role,
        resources=_resources(cpus, memory),
        own_image=image is not None,
    )
    cluster = load_or_end(config, directory, as_json=as_json).cluster
    _tell(cluster, wanted, facts_of(machine), as_json=as_json)


def _tell(cluster: Cluster, wanted: Wanted, facts: MachineFacts, *, as_json: bool) -> None:
    table = RoutingTable.build(cluster, {each.name: (facts,) for each in cluster.scalers})
    explanation = explanation_of(table, wanted)
    if as_json:
        print_json(explanation_document(explanation))
    else:
        typer.echo("\n".join(explanation_lines(explanation)))
        if any(scaler.type.is_local and scaler.platform is None for scaler in cluster.scalers):
            typer.echo(f"(machines taken to be {facts.os}/{facts.arch})")
    if explanation.route is None:
        raise typer.Exit(ExitCode.INVALID)


def explanation_lines(explanation: Explanation) -> list[str]:
    """An explanation for people: the choice, then every other scaler, the closest first."""
    route = explanation.route
    lines = _route_lines(route) if route else ["no scaler serves this job", *explanation.hints]
    if not explanation.misses:
        return lines if route else [*lines, "(no scaler is configured)"]
    width = max(len(miss.scaler) for miss in explanation.misses)
    return [*lines, *(f"  {miss.scaler:<{width}}  {miss.reason}" for miss in explanation.misses)]


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """An explanation for programs."""
    route = explanation.route
    return {
        "served": route is not None,
        "scaler": route and route.scaler.name,
        "labelSet": route and route.label_set.labels,
        "agentLabels": route and agent_labels(route.scaler, route.label_set, _only(route)),
        "resources": route and _shape_document(route),
        "others": [_miss_document(miss) for miss in explanation.misses],
        "hints": explanation.hints,
    }


def _only(route: Route) -> MachineFacts | None:
    return route.facts[0] if route.facts else None


def _route_lines(route: Route) -> list[str]:
    labels = ", ".join(route.label_set.labels)
    amounts = [f"{side} {_amounts(each)}" for side, each in _shape_document(route).items() if each]
    sizes = f" ({'; '.join(amounts)})" if amounts else ""
    return [f"{route.scaler.name} [{labels}] serves this job{sizes}"]


def _amounts(amount: dict[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in amount.items())


def _shape_document(route: Route) -> dict[str, dict[str, str]]:
    return {
        side: {
            **({"cpus": format_cpus(each.cpu_millis)} if each.cpu_millis else {}),
            **({"memory": format_memory(each.memory_bytes)} if each.memory_bytes else {}),
        }
        for side, each in (("requests", route.shape.requests), ("limits", route.shape.limits))
    }


def _miss_document(miss: Miss) -> dict[str, object]:
    return {
        "scaler": miss.scaler,
        "type": miss.type.value,
        "labelSet": miss.label_set,
        "kind": miss.kind.value,
        "reason": miss.reason,
        "distance": miss.distance,
    }


def _labels(text: str) -> list[str]:
    labels = [canonical(label) for label in text.split(",") if label.strip()]
    for label in labels:
        problem = label_problem(label)
        if problem is not None:
            raise InvalidInput(f"label {label!r} {problem}")
    return labels


def _resources(cpus: float | None, memory: str | None) -> Resources:
    declared = {"cpus": cpus, "memory": memory}
    try:
        return parse_resources({key: each for key, each in declared.items() if each is not None})
    except BadResources as error:
        raise InvalidInput(str(error)) from error


def facts_of(machine: str | None) -> MachineFacts:
    """The facts of `os/arch`, or of this machine."""
    if machine is None:
        return MachineFacts.discovered(sys.platform, platform.machine())
    os, slash, arch = machine.partition("/")
    if not (os and slash and arch):
        raise InvalidInput(f"--machine {machine!r}: write os/arch, like linux/arm64")
    return MachineFacts.discovered(os, arch)
