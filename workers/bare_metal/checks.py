"""What of a bare-metal scaler's needs a machine meets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kici_scaler.domain.scalers import LabelSet, Scaler
from workers.bare_metal import answers
from workers.bare_metal.boxed import is_boxed, is_open
from workers.contract import Finding, Severity
from workers.environment import forwarded

BUILTIN_AGENT = "builtin:agent"
"""A `binaryPath` that stands for the reference agent of this installation."""

SANDBOX = "bwrap"

AGENT_PYTHON = (3, 11)
"""The oldest that the reference agent runs on."""

MINIMUM_FREE_BYTES = 256 << 20
"""Below this a machine is said to be short of disk; room for some dozens of agents' logs."""


def needs_agent(label_set: LabelSet) -> bool:
    """Whether its agents are the reference agent of this installation."""
    return label_set.text("binaryPath") == BUILTIN_AGENT


def executables_of(scalers: Sequence[Scaler], ambient: Mapping[str, str]) -> set[str]:
    """The programs that the machine must have for these scalers."""
    label_sets = [each for scaler in scalers for each in scaler.label_sets]
    programs = {each.text("binaryPath") or "" for each in label_sets if not needs_agent(each)}
    sandbox = {SANDBOX} if any(_wants_sandbox(each, ambient) for each in label_sets) else set()
    return (programs - {""}) | sandbox


def findings_of(
    scalers: Sequence[Scaler],
    checked: answers.Checked,
    ambient: Mapping[str, str],
    *,
    is_here: bool = True,
) -> tuple[Finding, ...]:
    """Judge what the supervisor of the machine answered."""
    found = [*_of_machine(checked)]
    for scaler in scalers:
        found += _of_scaler(scaler, checked, is_here=is_here)
        for label_set in scaler.label_sets:
            subject = f"{scaler.name}, label set {label_set.index}"
            found += _of_label_set(subject, scaler, label_set, checked, ambient, is_here=is_here)
    return tuple(found)


def _of_machine(checked: answers.Checked) -> Iterator[Finding]:
    yield Finding(Severity.OK, "supervisor", f"answers, on Python {checked.python}")
    if checked.free_bytes < MINIMUM_FREE_BYTES:
        free = checked.free_bytes >> 20
        yield Finding(
            Severity.WARNING,
            "disk",
            f"only {free} MiB are free where agents keep their output",
            "free some space, or point KICI_STATE_DIR elsewhere",
        )


def _of_scaler(scaler: Scaler, checked: answers.Checked, *, is_here: bool) -> Iterator[Finding]:
    whose = "this host, with all rights of the worker's user"
    if not is_here:
        whose = "the machine, with all rights of the user that the worker logs in as"
    yield Finding(
        Severity.WARNING,
        scaler.name,
        f"agents run as processes of {whose}",
        "serve trusted jobs only, or let agents sandbox jobs with bubblewrap (KICI_SANDBOX=true)",
    )
    can_limit = checked.cgroups is not None or checked.scopes
    if scaler.options.get("enforceCgroups") is True and not can_limit:
        yield Finding(
            Severity.WARNING,
            scaler.name,
            "`enforceCgroups` has no effect: no cgroup can be made here",
            "run the worker as root, or delegate a cgroup to its user",
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(".") if each.isdigit())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _of_boxed(subject: str, scaler: Scaler, checked: answers.Checked) -> Iterator[Finding]:
    if checked.runtime is None:
        yield Finding(
            Severity.ERROR,
            subject,
            "has an `image` and no program, and the machine has no container runtime",
            "install Docker or Podman there and let the user use it, or set `binaryPath`",
        )
    elif not is_open(scaler.options):
        yield Finding(
            Severity.ERROR,
            subject,
            "its containers cannot be isolated by a bare-metal scaler",
            "set `networkIsolation: false`, or use a scaler of `type: container`",
        )
    else:
        yield Finding(Severity.OK, subject, f"runs its image by {checked.runtime}")


def _of_label_set(
    subject: str,
    scaler: Scaler,
    label_set: LabelSet,
    checked: answers.Checked,
    ambient: Mapping[str, str],
    *,
    is_here: bool,
) -> Iterator[Finding]:
    if is_boxed(label_set):
        yield from _of_boxed(subject, scaler, checked)
        return
    path = label_set.text("binaryPath")
    fault = checked.executables.get(path or "")
    if not path:
        yield Finding(
            Severity.ERROR, subject, "names no program", "set `binaryPath` on the label set"
        )
    elif fault:
        yield Finding(
            Severity.ERROR, subject, f"{path} {fault}", "install it, or correct `binaryPath`"
        )
    elif needs_agent(label_set) and not is_here and _version(checked.python) < AGENT_PYTHON:
        yield Finding(
            Severity.ERROR,
            subject,
            f"the reference agent needs Python {_dotted(AGENT_PYTHON)}, the machine has "
            f"{checked.python}",
            f"install Python {_dotted(AGENT_PYTHON)} or newer as `python3`",
        )
    else:
        yield Finding(Severity.OK, subject, f"{path} can be run")
    if label_set.options.get("networkPolicy") is not None:
        yield Finding(
            Severity.WARNING,
            subject,
            "`networkPolicy` is not enforced for processes",
            "use a container or firecracker scaler for jobs that must be kept apart",
        )
    if _wants_sandbox(label_set, ambient) and checked.executables.get(SANDBOX):
        yield Finding(
            Severity.ERROR,
            subject,
            f"KICI_SANDBOX is `true` and there is no `{SANDBOX}` on the path",
            "install bubblewrap",
        )


def _wants_sandbox(label_set: LabelSet, ambient: Mapping[str, str]) -> bool:
    declared = label_set.options.get("env")
    own = declared.get("KICI_SANDBOX") if isinstance(declared, Mapping) else None
    return (own or forwarded(ambient).get("KICI_SANDBOX")) == "true"
