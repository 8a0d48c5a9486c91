"""`kici-scaler machines add` and `check`: machines before they are trusted with work."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from kici_scaler.cli.failures import read_settings
from kici_scaler.cli.files import DropIns
from kici_scaler.cli.output import AsJson
from kici_scaler.errors import InvalidInput, NotFound, Unavailable
from workers.bare_metal.preflight import ListedMachine, examine, listed_machines, worst
from workers.bare_metal.ssh import host_keys
from workers.bare_metal.ssh.dial import Timeouts, shown_key
from workers.bare_metal.ssh.target import DEFAULT_PORT, Target
from workers.command_options import ScalerFile, context_here, named_cluster
from workers.contract import Deadline, Finding, Severity
from workers.errors import BackendError

AT_ONCE = 16
"""How many machines are looked at at the same time."""
SCAN_SECONDS = 30.0

check_app = typer.Typer(add_completion=False)
add_app = typer.Typer(add_completion=False)


@check_app.command("check")
def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which; all unless given.")
    ] = None,
    config: ScalerFile = None,
    directory: DropIns = None,
    as_json: AsJson = False,
) -> None:
    """Look at the machines of a scaler file from here, and print what to fix.

    Each is reached as a worker here would reach it: connection and key, python3, clock, disk,
    cgroups, and the programs that its scalers start. Nothing is started. Exit code 1 when agents
    could not run on one of them.

    Example: kici-scaler machines check build-7 --config scalers.yaml
    """
    machines = _chosen(listed_machines(named_cluster(config, directory)), names or [])
    context = context_here(read_settings())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda each: examine(each, context), machines))
    if as_json:
        typer.echo(json.dumps(_as_json(machines, found), indent=2))
    else:
        _print(machines, found)
    if any(worst(each) is Severity.ERROR for each in found):
        raise typer.Exit(1)


def _chosen(machines: Sequence[ListedMachine], names: Sequence[str]) -> Sequence[ListedMachine]:
    known = {each.name: each for each in machines}
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise NotFound(f"no scaler lists a machine `{name}`", hint=f"Listed: {listed}.")
    if not machines:
        raise NotFound(
            "no scaler of this file lists machines",
            hint="`kici-scaler machines add ADDRESS` prints an entry for one.",
        )
    return [known[name] for name in names] if names else machines


def _as_json(
    machines: Sequence[ListedMachine], found: Sequence[Sequence[Finding]]
) -> dict[str, Any]:
    return {
        "machines": [
            {
                "name": machine.name,
                "scalers": [each.name for each in machine.scalers],
                "ok": worst(findings) is not Severity.ERROR,
                "findings": [
                    {
                        "severity": each.severity.value,
                        "subject": each.subject,
                        "message": each.message,
                        "hint": each.hint,
                    }
                    for each in findings
                ],
            }
            for machine, findings in zip(machines, found, strict=True)
        ]
    }


def _print(machines: Sequence[ListedMachine], found: Sequence[Sequence[Finding]]) -> None:
    for machine, findings in zip(machines, found, strict=True):
        verdict = {
            Severity.OK: "ready",
            Severity.WARNING: "ready, with warnings",
            Severity.ERROR: "not ready",
        }[worst(findings)]
        typer.echo(f"{machine.name}: {verdict}")
        for each in findings:
            typer.echo(f"  {each.severity.value:<8}{each.subject}: {each.message}")
            if each.hint and each.severity is not Severity.OK:
                typer.echo(f"          to fix: {each.hint}")


@add_app.command("add")
def add(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Host name or address.")],
    name: Annotated[str | None, typer.Option(help="How it shall be called.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="SSH port.")] = DEFAULT_PORT,
    user: Annotated[str | None, typer.Option(help="Whom to log in as.")] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="Private key, on the worker.", metavar="PATH")
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            help="What its key must be, as `ssh-keygen -lf` prints it on the machine.",
            metavar="SHA256:...",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the entry of a machine for `machines:`, with its host key pinned.

    The key is what answers at that address shows now: compare the fingerprint with the one that
    `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints on the machine itself, or give it,
    and nothing is printed for another key. Nothing is logged into, and no file is changed.

    Example: kici-scaler machines add 10.0.0.7 --name build-7 --user ci --key-file /etc/kici/key
    """
    target = Target(address, port=port, user=user)
    try:
        key = shown_key(target, Deadline.after(SCAN_SECONDS), Timeouts())
    except BackendError as error:
        raise Unavailable(str(error), hint=error.hint) from error
    seen = host_keys.fingerprint(key)
    if fingerprint is not None and fingerprint != seen:
        raise InvalidInput(
            f"`{target.place}` shows another key: {seen}",
            hint="Somebody may answer in its place; look at the machine itself.",
        )
    given = {
        **({} if name is None else {"name": name}),
        "address": address,
        **({} if port == DEFAULT_PORT else {"port": port}),
        **({} if user is None else {"user": user}),
        **({} if key_file is None else {"keyFile": str(key_file)}),
        "hostKey": host_keys.as_line(key),
    }
    if as_json:
        typer.echo(json.dumps({"machine": given, "fingerprint": seen}, indent=2))
        return
    typer.echo(_snippet(given))
    if fingerprint is None:
        typer.echo(f"Its key has the fingerprint {seen}. Compare it on the machine.", err=True)


def _snippet(entry: Mapping[str, object]) -> str:
    """One item of the list, indented as below a scaler's `machines:`."""
    text = yaml.safe_dump([dict(entry)], sort_keys=False, width=1000, allow_unicode=True)
    return "\n".join(f"      {line}" for line in text.rstrip().splitlines())
