"""`kici-scaler deliveries`: what provisioning targets were told, and what they were not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from kici_scaler.cli import access, render
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.domain.delivery import DeliveryState

if TYPE_CHECKING:
    from kici_scaler.gateway.models_deliveries import DeliveryView

app = typer.Typer(
    help="List, show and hurry the events that machines of event scalers are asked for by.",
    no_args_is_help=True,
)

DeliveryId = Annotated[
    str, typer.Argument(help="The id of the delivery, as its event carries it.", metavar="ID")
]


@app.command("list")
def list_deliveries(
    agent: Annotated[str | None, typer.Option(help="Only for this agent.")] = None,
    scaler: Annotated[str | None, typer.Option(help="Only of this scaler.")] = None,
    state: Annotated[
        list[DeliveryState] | None, typer.Option(help="Only in this state; may be repeated.")
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Only what could not be delivered.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List deliveries, the newest first.

    Example: kici-scaler deliveries list --dead
    """
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.gateway.models_deliveries import DeliveryList

    query: dict[str, str | int | list[str]] = {"limit": limit, "dead": str(dead).lower()}
    query |= {"agent": agent} if agent else {}
    query |= {"scaler": scaler} if scaler else {}
    query |= {"state": [each.value for each in state]} if state else {}
    with access.operator() as gateway:
        answer = gateway.get("/v1/deliveries", query)
    if as_json:
        print_json(answer)
        return
    rows = map(_row, parsed(DeliveryList, answer).deliveries)
    columns = ("delivery", "event", "agent", "target", "state", "tries", "for", "remark")
    render.print_table(columns, rows, empty="no deliveries")


@app.command()
def show(delivery_id: DeliveryId, as_json: AsJson = False) -> None:
    """Show one delivery: when it was tried, what came of it, whether it may have been acted on.

    Example: kici-scaler deliveries show 6f1c9a52-0f5e-4c55-9d2e-0a4d2f1f3b77
    """
    with access.operator() as gateway:
        answer = gateway.get(_path(delivery_id))
    _print(answer, as_json=as_json)


@app.command()
def retry(delivery_id: DeliveryId, as_json: AsJson = False) -> None:
    """Try a pending delivery now instead of after its pause, say once its target was mended.

    Example: kici-scaler deliveries retry 6f1c9a52-0f5e-4c55-9d2e-0a4d2f1f3b77
    """
    with access.operator() as gateway:
        answer = gateway.post(f"{_path(delivery_id)}/retry")
    _print(answer, as_json=as_json)


def _path(delivery_id: str) -> str:
    return f"/v1/deliveries/{quote(delivery_id, safe='')}"


def _print(answer: object, *, as_json: bool) -> None:
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.gateway.models_deliveries import DeliveryView

    if as_json:
        print_json(answer)
    else:
        render.print_details(_details(parsed(DeliveryView, answer)))


def _row(each: DeliveryView) -> tuple[object, ...]:
    return (each.id, each.kind.value, each.agent_id, each.target, _state(each), each.attempts,
            render.ago(each.created_at), each.last_error)  # fmt: skip


def _state(each: DeliveryView) -> str:
    if each.dead_letter:
        return f"{each.state} (dead letter)"
    return "in flight" if each.in_flight else each.state.value


def _details(each: DeliveryView) -> Iterator[tuple[str, object]]:
    yield "delivery", each.id
    yield "event", each.kind.value
    yield "agent", each.agent_id
    yield "scaler", each.scaler
    yield "target", each.target
    yield "state", _state(each)
    yield "may have acted", each.may_have_acted
    yield "reason", each.reason
    yield "round", each.round if each.round > 1 else None
    yield "tries", each.attempts
    yield "last status", each.last_status
    yield "last error", each.last_error
    yield "created", each.created_at
    yield "last tried", each.attempted_at
    yield "next try", each.next_attempt_at
    yield "closed", each.closed_at
