"""`kici-scaler keys`: API keys of the gateways, made and revoked directly in the database."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kici_scaler.cli.access import local_instance
from kici_scaler.cli.failures import read_settings
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.cli.render import print_table
from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from kici_scaler.service.runtime import Runtime
    from kici_scaler.store.api_keys import ApiKeyRow

app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)

_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"([1-9]\d{0,6})([mhdw])")


@app.command()
def create(
    scope: Annotated[KeyScope, typer.Option(help="What it is good for.", case_sensitive=False)],
    name: Annotated[str, typer.Option(help="Whom or what it is for; unique among live keys.")],
    expires: Annotated[
        str | None, typer.Option(help="When it stops to work: 12h, 90d, 52w. Never unless given.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Scope agent: a label its agents may have; any unless given. Repeat."),
    ] = None,
    mandatory_label: Annotated[
        list[str] | None,
        typer.Option(help="Scope agent: what jobs must ask for to be served by its agents."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, once: it is kept nowhere.

    Example: kici-scaler keys create --scope dispatcher --name ci --expires 90d
    """
    from kici_scaler.service import keys

    ttl = None if expires is None else duration_seconds(expires)
    with _database() as runtime:
        made = keys.create(
            runtime, scope=scope, name=name, ttl_seconds=ttl, actor=_actor(),
            labels=label or None, gate=mandatory_label or (),
        )  # fmt: skip
    if as_json:
        print_json({**_document(made.row), "token": made.token})
    else:
        typer.echo(made.token)
        until = "" if made.row.expires_at is None else f", until {_moment(made.row.expires_at)}"
        typer.echo(f"key {made.row.name} ({made.row.id}), scope {made.row.scope}{until};"
                   " it is not shown again", err=True)  # fmt: skip


@app.command()
def sealing(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file of private keys.")],
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Add a key: it seals from now on, all still open.")
    ] = False,
) -> None:
    """Make the cluster's sealing key where there is none; payloads are sealed to it.

    Example: kici-scaler keys sealing /etc/kici/seal.json
    """
    from kici_scaler.sealing import add_key, ensure_keys

    path.parent.mkdir(parents=True, exist_ok=True)
    found = add_key(path) if rotate and path.exists() else ensure_keys(path)
    typer.echo(f"{path}: {len(found.keys)} keys; new payloads are sealed to {found.newest.key_id}")


@app.command("list")
def show_all(as_json: AsJson = False) -> None:
    """List all keys, also those that expired or were revoked; never their secrets."""
    from kici_scaler.service import keys

    with _database() as runtime:
        rows = keys.listed(runtime)
    if as_json:
        print_json([_document(row) for row in rows])
        return
    print_table(
        ("id", "name", "scope", "state", "created", "expires", "last used"),
        (
            (row.id, row.name, row.scope.value, _state(row), _moment(row.created_at),
             _moment(row.expires_at), _moment(row.last_used_at))
            for row in rows
        ),
        empty="no keys",
    )  # fmt: skip


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Its id or name.")], as_json: AsJson = False
) -> None:
    """Make a key worthless; gateways stop to take it within five seconds."""
    from kici_scaler.service import keys

    with _database() as runtime:
        row = keys.revoke(runtime, key, actor=_actor())
    if as_json:
        print_json({"id": row.id, "name": row.name, "revoked": True})
    else:
        typer.echo(f"key {row.name} ({row.id}) is revoked")


def duration_seconds(text: str) -> float:
    """Seconds in a duration such as `90d`.

    Raises:
        InvalidInput: it is none.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidInput(
            f"--expires {text!r} is no duration",
            hint="Write a number with a unit: 30m, 12h, 90d, 52w.",
        )
    return float(match[1]) * _UNITS[match[2]]


@contextmanager
def _database() -> Iterator[Runtime]:
    """The use cases' outside: the database of the environment, else of the local instance."""
    # Imported only now: help must not wait for it.
    from kici_scaler.service.runtime import Runtime
    from kici_scaler.store import migrate
    from kici_scaler.store.engine import make_engine

    url = _database_url()
    problem = migrate.current_problem(url)
    if problem is not None:
        raise Conflict(problem)
    engine = make_engine(url, application="keys", pool_size=1)
    try:
        yield Runtime(engine, "keys")
    finally:
        engine.dispose()


def _database_url() -> str:
    url = read_settings().database_url.get_secret_value()
    if url:
        return url
    profile = local_instance()
    if profile is None:
        raise InvalidInput(
            "KICI_DATABASE_URL is not set, and no `kici-scaler up` runs here",
            hint="Set the variable, or start `kici-scaler up` first.",
        )
    return profile.database_url.get_secret_value()


def _actor() -> str:
    try:
        return f"cli {getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"


def _state(row: ApiKeyRow) -> str:
    if row.revoked_at is not None:
        return "revoked"
    return "valid" if row.is_valid else "expired"


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.strftime("%Y-%m-%d %H:%M")


def _document(row: ApiKeyRow) -> dict[str, Any]:
    times = {
        "createdAt": row.created_at,
        "expiresAt": row.expires_at,
        "lastUsedAt": row.last_used_at,
        "revokedAt": row.revoked_at,
    }
    return {
        "id": row.id,
        "name": row.name,
        "scope": row.scope.value,
        "state": _state(row),
        "createdBy": row.created_by,
        **{key: None if at is None else at.isoformat() for key, at in times.items()},
    }
