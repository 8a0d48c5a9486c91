"""`kici-scaler config`: check, show and compare scaler files. Needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kici_scaler.cli.files import DropIns, File, counted, load_or_end
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.cli.reload import show_revision
from kici_scaler.domain.reload import Bucket, Change, ReloadPlan, plan_reload
from kici_scaler.errors import ExitCode

if TYPE_CHECKING:
    from kici_scaler.scalers_file import LoadedFile

app = typer.Typer(help="Check, show and compare scaler files.", no_args_is_help=True)

_SIGNS = {
    Bucket.ADDED: "+",
    Bucket.REMOVED: "-",
    Bucket.CHANGED: "~",
    Bucket.RESURRECTED: "+",
    Bucket.TYPE_CHANGED: "!",
    Bucket.KEPT: "=",
}


@app.command()
def check(path: File, directory: DropIns = None, as_json: AsJson = False) -> None:
    """Check a scaler file; every mistake is named at once.

    Ends with 0 when it is valid (warnings included), 1 when it is not, 2 when it cannot be read.

    Example: kici-scaler config check scalers.yaml --dir scalers.d
    """
    loaded = load_or_end(path, directory, as_json=as_json)
    if as_json:
        print_json(_verdict(loaded))
        return
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}")
    label_sets = sum(len(each.label_sets) for each in loaded.cluster.scalers)
    counts = f"{counted(len(loaded.cluster.scalers), 'scaler')}, {counted(label_sets, 'label set')}"
    typer.echo(f"{', '.join(loaded.files)}: valid; {counts}; digest {loaded.digest[:12]}")


@app.command()
def show(path: File, directory: DropIns = None, as_json: AsJson = False) -> None:
    """Print the configuration as it counts: drop-ins merged, defaults filled in.

    A number instead of a path means an accepted revision, asked of the gateway.

    Example: kici-scaler config show scalers.yaml; kici-scaler config show 7
    """
    if path.name.isdigit() and not path.exists():
        show_revision(int(path.name), as_json=as_json)
        return
    loaded = load_or_end(path, directory, as_json=as_json)
    if as_json:
        print_json(loaded.document)
    else:
        from kici_scaler.scalers_file.yaml_text import to_yaml

        typer.echo(to_yaml(loaded.document), nl=False)


@app.command()
def schema(
    drop_in: Annotated[
        bool, typer.Option("--drop-in", help="The schema of files in the drop-in folder.")
    ] = False,
) -> None:
    """Print the JSON Schema that editors check and complete scaler files with.

    Example: kici-scaler config schema > scalers.schema.json
    """
    from kici_scaler.scalers_file.schema import schema_text

    typer.echo(schema_text(drop_in=drop_in), nl=False)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="The scaler file in force.", metavar="OLD")],
    new: Annotated[Path, typer.Argument(help="The one to reload to.", metavar="NEW")],
    old_dir: Annotated[Path | None, typer.Option(help="Folder of OLD's drop-ins.")] = None,
    new_dir: Annotated[Path | None, typer.Option(help="Folder of NEW's drop-ins.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a reload from OLD to NEW would do.

    Ends with 1 when the reload would be rejected.

    Example: kici-scaler config diff /etc/kici/scalers.yaml scalers.yaml
    """
    before = load_or_end(old, old_dir, as_json=as_json)
    after = load_or_end(new, new_dir, as_json=as_json)
    plan = plan_reload(before.cluster, after.cluster)
    if as_json:
        print_json(plan_document(plan))
    else:
        typer.echo("\n".join(plan_lines(plan)))
    if plan.rejections:
        raise typer.Exit(ExitCode.INVALID)


def plan_document(plan: ReloadPlan) -> dict[str, Any]:
    """A reload plan for programs: names by bucket, and what changes."""
    return {
        "accepted": not plan.rejections,
        "rejections": plan.rejections,
        **{bucket.value: plan.named(bucket) for bucket in Bucket},
        "changes": {each.name: list(map(_change, each.changes)) for each in plan.scalers},
        "cluster": list(map(_change, plan.cluster)),
    }


def plan_lines(plan: ReloadPlan) -> list[str]:
    """A reload plan for people, a line a scaler and a line a change."""
    if plan.changes_nothing:
        return ["nothing changes"]
    lines = [_changed("", change) for change in plan.cluster]
    for each in plan.scalers:
        lines.append(f"{_SIGNS[each.bucket]} {each.name}: {each.bucket.value}")
        lines += [_changed("    ", change) for change in each.changes]
    return [*lines, *(f"rejected: {each}" for each in plan.rejections)]


def _verdict(loaded: LoadedFile) -> dict[str, object]:
    return {
        "valid": True,
        "files": loaded.files,
        "digest": loaded.digest,
        "scalers": [each.name for each in loaded.cluster.scalers],
        "warnings": [warning.as_document() for warning in loaded.warnings],
    }


def _change(change: Change) -> dict[str, object]:
    return {"field": change.field, "old": change.old, "new": change.new}


def _changed(indent: str, change: Change) -> str:
    return f"{indent}{change.field}: {_shown(change.old)} -> {_shown(change.new)}"


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
