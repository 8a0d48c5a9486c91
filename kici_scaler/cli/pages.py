"""How status, capacity and routing answers look to a person."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from kici_scaler.cli.render import ago, span, table_of
from kici_scaler.gateway.models_routing import CanServeView
from kici_scaler.gateway.models_status import (
    Amounts,
    CapacityRow,
    CapacityView,
    GatewayView,
    MachineView,
    ScalerView,
    StatusView,
)

ADDED = "kici:"
"""What labels begin with that nobody writes."""
SCALER_COLUMNS = ("scaler", "type", "state", "agents", "starting", "warm", "ending", "holds",
                  "label sets", "takes nothing because")  # fmt: skip
MACHINE_COLUMNS = ("machine", "type", "state", "platform", "agents", "holds", "of", "serves",
                   "cannot run", "last seen")  # fmt: skip
GATEWAY_COLUMNS = ("gateway", "host", "fresh", "agents", "up for", "last seen")
CAPACITY_COLUMNS = ("scaler", "type", "free", "in use", "of", "label sets", "takes nothing because")


def status_page(found: StatusView) -> RenderableType:
    """The whole cluster."""
    return Group(
        _headline(found),
        scalers_page(found),
        machines_page(found),
        table_of(GATEWAY_COLUMNS, (_gateway_row(each, found) for each in found.gateways)),
    )


def scalers_page(found: StatusView) -> RenderableType:
    """The scalers of the configuration, and those that left it and still have agents."""
    if not found.backends:
        return Text("no scaler is configured")
    return table_of(SCALER_COLUMNS, (_scaler_row(each, found) for each in found.backends))


def machines_page(found: StatusView) -> RenderableType:
    """The machines that workers announced."""
    if not found.machines:
        return Text("no machine is known: start a worker with `kici-scaler worker TYPE`")
    return table_of(MACHINE_COLUMNS, (_machine_row(each, found) for each in found.machines))


def capacity_page(found: CapacityView) -> RenderableType:
    """What could still be taken."""
    draining = "; the cluster drains" if found.draining else ""
    return Group(
        table_of(CAPACITY_COLUMNS, map(_capacity_row, found.scalers)),
        Text(f"the cluster's own cap leaves {found.available}{draining}"),
    )


def can_serve_page(found: CanServeView) -> RenderableType:
    """Who would serve a job, and why the others would not."""
    labels = ", ".join(found.label_set or [])
    said = f"{found.scaler} [{labels}] serves this job" if found.served else "no scaler serves it"
    others = [(each.scaler, each.type, each.reason) for each in found.others]
    table = table_of(("scaler", "type", "why not"), others) if others else Text("")
    return Group(Text(said), *map(Text, found.hints), table)


def _headline(found: StatusView) -> Text:
    waiting = [f"{count} {state}" for state, count in found.requests.items() if count]
    text = Text.assemble(
        ("requests  ", "dim"), ", ".join(waiting) or "none", "\n",
        ("agents    ", "dim"), f"{found.global_active_count} of {found.global_max_agents}",
        f", {found.spawning_count} starting, {found.warm_pool_count} warm", "\n",
        ("revision  ", "dim"), str(found.revision),
    )  # fmt: skip
    if found.static_agents:
        counted = ", ".join(f"{count} {state}" for state, count in found.static_agents.items())
        text.append(f"\nbesides   {counted}: agents that no scaler made")
    if found.draining:
        text.append("\nthe cluster drains: new demand is turned away", "bold magenta")
    if found.held_back:
        said = "\nthe database failed over: nothing is admitted until `kici-scaler resume`"
        text.append(said, "bold red")
    if found.unwatched_why:
        lasted = span(found.unwatched_seconds)
        said = f"\nnobody has watched over agents for {lasted}: {found.unwatched_why}"
        text.append(said, "bold red")
    return text


def _scaler_row(each: ScalerView, found: StatusView) -> tuple[object, ...]:
    per = " a machine" if each.spawns_on_local_host else ""
    return (each.name, each.type, _standing(each, found),
            f"{each.active_count}, at most {each.max_agents}{per}", each.in_flight_count,
            each.warm_count, each.ending_count, _amounts(each.usage),
            _label_sets(each.label_sets), _why_nothing(each))  # fmt: skip


def _standing(each: ScalerView, found: StatusView) -> str:
    if each.retiring:
        return f"retiring for {ago(each.retiring_since, found.at)}"
    return "degraded" if each.degraded_on and each.standing == "active" else each.standing


def _why_nothing(each: ScalerView) -> str:
    if each.backoff_seconds > 0:
        return f"{each.why_nothing} (for {span(each.backoff_seconds)})"
    # Some machines cannot run it, others can.
    elsewhere = "; ".join(f"not on {name}: {why}" for name, why in each.degraded_on.items())
    return each.why_nothing or elsewhere


def _machine_row(each: MachineView, found: StatusView) -> tuple[object, ...]:
    state = each.state if each.is_fresh else "unreachable"
    whole = Amounts(cpus=each.cpus, mem_bytes=each.mem_bytes)
    platform = f"{each.os or '?'}/{each.arch or '?'}"
    serves = "all of its type" if each.serves is None else each.serves
    reasons = [f"{name}: {why}" for name, why in each.degraded.items()]
    cannot = "; ".join([each.note, *reasons] if each.note else reasons)
    return (each.id, each.backend_type, state, platform, each.active_count,
            _amounts(each.usage), _amounts(whole), serves, cannot,
            ago(each.last_heartbeat, found.at))  # fmt: skip


def _gateway_row(each: GatewayView, found: StatusView) -> tuple[object, ...]:
    return (each.incarnation, each.host, each.is_fresh, each.agents,
            ago(each.started_at, found.at), ago(each.last_heartbeat, found.at))  # fmt: skip


def _capacity_row(each: CapacityRow) -> tuple[object, ...]:
    return (each.name, each.type, each.available, each.active_count, each.total,
            _label_sets(each.label_sets), each.why_nothing)  # fmt: skip


def _label_sets(label_sets: list[list[str]]) -> str:
    """Label sets without the labels that are added to each."""
    own = ([label for label in each if not label.startswith(ADDED)] for each in label_sets)
    return " | ".join(", ".join(labels) for labels in own)


def _amounts(held: Amounts) -> str:
    cpus = f"{held.cpus:g} CPUs" if held.cpus else ""
    memory = f"{held.mem_bytes / 2**30:.1f} Gi" if held.mem_bytes else ""
    return ", ".join(filter(None, (cpus, memory)))
