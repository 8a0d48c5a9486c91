"""`kici-scaler health ROLE`: whether a role does its work, for container health checks.

Asked are the rows that the role's work leaves behind, not whether its process exists: a
worker that is deaf to its queue lives, and does nothing. A beat leaves no rows; it leaves a
sign with each tick that the broker took.

`python3 -m kici_scaler.cli.health ROLE` is the same without loading every other command, for
checks that are asked all the time.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Annotated

import typer

from config.celery_settings import BACKEND_KINDS, CONTROL_KIND
from kici_scaler.cli.failures import read_settings, reported
from kici_scaler.errors import InvalidInput, Unavailable

SWEEP_SECONDS = 30.0
"""Control workers sweep each second."""
MACHINE_SECONDS = 30.0
"""Backend workers say that their machine lives each few seconds."""
TICK_SECONDS = 30.0
"""A beat ticks each second."""
ANSWER_SECONDS = 10.0
"""For a gateway on a busy host."""
BEAT = "beat"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(health)


def health(
    role: Annotated[
        str,
        typer.Argument(help=f"`gateway`, `beat`, {CONTROL_KIND}, {', '.join(BACKEND_KINDS)}."),
    ],
) -> None:
    """Say whether a role does its work; ends with 0 when it does, 2 when it does not.

    Example: kici-scaler health control
    """
    if role == "gateway":
        _gateway()
    elif role == BEAT:
        _beat()
    elif role in (CONTROL_KIND, *BACKEND_KINDS):
        _worker(role)
    else:
        raise InvalidInput(f"there is no role {role!r}")
    typer.echo(f"{role} does its work")


def _gateway() -> None:
    its = read_settings()
    host = "127.0.0.1" if its.host in ("0.0.0.0", "::") else its.host  # compared
    asked = HTTPConnection(host, its.port, timeout=ANSWER_SECONDS)
    try:
        asked.request("GET", "/readyz")
        answer = asked.getresponse()
        told = answer.read(200).decode(errors="replace")
    except (OSError, HTTPException) as error:
        raise Unavailable(f"the gateway does not answer: {error}") from error
    finally:
        asked.close()
    if answer.status != HTTPStatus.OK:
        raise Unavailable(f"the gateway is not ready: {told}")


def _beat() -> None:
    """Whether this machine's beat has its ticks taken; of several, the one that did last."""
    sign = read_settings().beat_sign_path
    try:
        age = time.time() - sign.stat().st_mtime
    except OSError as error:
        raise Unavailable(f"no beat ticked here: {error}") from error
    if age > TICK_SECONDS:
        raise Unavailable(f"the broker took the last tick {age:.0f} s ago")


def _worker(role: str) -> None:
    # Imported only now: help must not wait for the database's library.
    from kici_scaler.service import health as service
    from kici_scaler.store.engine import make_engine

    its = read_settings()
    engine = make_engine(its.database_url.get_secret_value(), application="health", pool_size=1)
    try:
        if role == CONTROL_KIND:
            service.check_sweep(engine, within_seconds=SWEEP_SECONDS)
        elif role != "event":
            service.check_machine(engine, its.machine_id, role, within_seconds=MACHINE_SECONDS)
        else:
            service.check_due(engine, within_seconds=SWEEP_SECONDS)
    finally:
        engine.dispose()


if __name__ == "__main__":
    with reported():
        typer.run(health)
