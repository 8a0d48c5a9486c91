"""One role of a real deployment, or one more for the instance that runs here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Never

import typer

from config.settings import Settings
from kici_scaler.cli.failures import read_settings
from kici_scaler.cli.up import DEFAULT_FLOWER_PORT
from kici_scaler.embedded import programs
from kici_scaler.embedded.profile import LocalProfile, load_profile
from kici_scaler.embedded.programs import WORKERS
from kici_scaler.errors import Conflict, InvalidInput


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (worker, gateway, beat, flower, migrate):
        app.command()(command)


def worker(
    kind: Annotated[
        str,
        typer.Argument(help=f"One of {', '.join(WORKERS)}.", autocompletion=lambda: list(WORKERS)),
    ],
    concurrency: Annotated[int | None, typer.Option(min=1, help="How many tasks at once.")] = None,
) -> None:
    """Run one Celery worker: `control`, or one that drives backends of a kind here."""
    if kind not in WORKERS:
        raise InvalidInput(f"there are no {kind!r} workers", hint=f"Choose {', '.join(WORKERS)}.")
    settings = _complete_settings()
    program = programs.worker_program(kind, settings.machine_id, concurrency)
    soft_stop = {name: os.environ.get(name, to) for name, to in programs.SOFT_STOP.items()}
    _become(program, {**soft_stop, **programs.worker_environment(kind)})


def gateway() -> None:
    """Run one gateway: agents, dispatchers, operators, metrics."""
    _complete_settings()
    _become(programs.gateway_program())


def beat() -> None:
    """Run one Celery beat; any number may run."""
    state_dir = _complete_settings().state_dir
    state_dir.mkdir(parents=True, exist_ok=True)
    _become(programs.beat_program(state_dir))


def flower(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="KICI_FLOWER_PORT", min=1, max=65535)
    ] = DEFAULT_FLOWER_PORT,
) -> None:
    """Run Flower, read-only; FLOWER_BASIC_AUTH=USER:PASSWORD says who may look."""
    _complete_settings()
    extra: dict[str, str] = {}
    if not any(os.environ.get(name) for name in ("FLOWER_BASIC_AUTH", "FLOWER_AUTH")):
        profile = _local_instance()
        if profile is None:
            raise InvalidInput(
                "Flower would be open to everybody: FLOWER_BASIC_AUTH is not set",
                hint="Set FLOWER_BASIC_AUTH=USER:PASSWORD in the environment.",
            )
        extra = programs.flower_environment(profile.flower_password_path.read_text().strip())
    _become(programs.flower_program(host, port), extra)


def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; fail when something is to be done.")
    ] = False,
) -> None:
    """Bring the database's schema to what this version needs."""
    # Imported only now: help must not wait for it.
    from kici_scaler.embedded.reachable import check_database
    from kici_scaler.store import migrate as schema

    url = _complete_settings(("database_url",)).database_url.get_secret_value()
    check_database(url)
    if not check:
        schema.upgrade(url)
    elif problem := schema.current_problem(url):
        raise Conflict(problem)
    typer.echo("the schema is up to date")


def _complete_settings(needed: Sequence[str] = ("database_url", "redis_url")) -> Settings:
    """The settings; where the environment names no servers, those of the instance that runs here.

    The environment of this process is completed, since the role that it becomes reads it.

    Raises:
        InvalidInput: it names no servers, and no instance runs.
    """
    settings = read_settings()
    missing = [name for name in needed if not getattr(settings, name).get_secret_value()]
    if not missing:
        return settings
    if (profile := _local_instance()) is None:
        variables = " and ".join(f"KICI_{name.upper()}" for name in missing)
        raise InvalidInput(
            f"{variables} not set, and no `kici-scaler up` runs here",
            hint="Set the variable, or start `kici-scaler up` first.",
        )
    for variable, value in profile.environment().items():
        os.environ.setdefault(variable, value)
    return read_settings()


def _local_instance() -> LocalProfile | None:
    folder = os.environ.get("KICI_DATA_DIR")
    return load_profile(Path(folder) if folder else None)


def _become(program: tuple[str, ...], extra: Mapping[str, str] | None = None) -> Never:
    os.execve(program[0], program, {**os.environ, **(extra or {})})
