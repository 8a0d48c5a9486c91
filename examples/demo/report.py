"""What came of it: a row a job, and whether everything was as it should be."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from examples.demo.dispatcher import Finished
from examples.demo.jobs import DemoJob
from kici_scaler.embedded.profile import LocalProfile

NUMBERS = ("wait", "run")
WHOLE = ("job", "agent", "wait", "run")
LONGEST_LINE = 40


def print_jobs(console: Console, jobs: Sequence[DemoJob], ended: dict[str, Finished]) -> None:
    """The table of the jobs."""
    table = Table(title="jobs", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("job", "agent", "wait", "run", "result", "log line", ""):
        justify: JustifyMethod = "right" if heading in NUMBERS else "left"
        table.add_column(heading, overflow="fold", justify=justify, no_wrap=heading in WHOLE)
    for job in jobs:
        found = ended.get(job.job_id)
        if found is None:
            table.add_row(job.job_id, "", "", "", "not over", "", "[bold red]no[/]")
        else:
            table.add_row(*_row(found))
    console.print(table)


def _row(found: Finished) -> tuple[str, ...]:
    complaint = found.complaint
    verdict = f"[bold red]{escape(complaint)}[/]" if complaint else "[green]as it should[/]"
    return (
        found.job.job_id,
        found.agent_id or "",
        _seconds(found.waited),
        _seconds(found.ran),
        escape(_result(found)),
        escape(_line(found)),
        verdict,
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _result(found: Finished) -> str:
    code = found.result.exit_code
    return str(found.result.error) if code is None else f"exit code {code}"


def _line(found: Finished) -> str:
    """The line of the log that proves the point, else the last one."""
    texts = [line.text for line in found.lines]
    last = texts[-1] if texts else ""
    line = next((text for text in texts if found.job.ending.line in text), last)
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def describe(profile: LocalProfile) -> str:
    """How to go on with an installation that was left running."""
    return f"""
It runs until Ctrl-C. In another terminal:

  export KICI_URL={profile.gateway_url} KICI_API_KEY=$(cat {profile.api_key_path})
  kici-scaler status --watch
  kici-scaler request --labels linux,demo -- uname -a
  kici-scaler request --labels linux,demo -- sh -c 'echo about to fail; exit 3'
  kici-scaler requests list --all
  kici-scaler agents list
"""
