"""The supervisor's answers, validated."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from workers.contract import ExitCause, ExitKind, FoundCompute


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Process(_Answer):
    """Which process an agent is: `start_ticks` are clock ticks after boot."""

    pid: int
    start_ticks: int
    boot_id: str


class Started(_Answer):
    """To `start`; `warnings` say which limits are not enforced, and why."""

    folder: str
    process: Process
    taken_over: bool
    warnings: tuple[str, ...] = ()


class Agent(_Answer):
    """One entry of `list`; `created_at` in epoch seconds."""

    agent_id: str
    installation_id: str
    scaler: str
    job_id: str | None
    run_id: str | None
    token: int
    running: bool
    created_at: float
    folder: str
    process: Process | None

    def as_found(self, machine_id: str) -> FoundCompute:
        """The entry in the words of the contract."""
        return FoundCompute(
            installation_id=self.installation_id,
            scaler=self.scaler,
            agent_id=self.agent_id,
            job_id=self.job_id,
            run_id=self.run_id,
            lease_token=self.token,
            running=self.running,
            created_at=datetime.fromtimestamp(self.created_at, UTC),
            name=self.agent_id,
            ref=reference(machine_id, self.folder, self.process),
        )


class Listed(_Answer):
    """To `list`; `unreadable` names agents whose folders do not say whose they are."""

    agents: tuple[Agent, ...]
    unreadable: tuple[str, ...]


class Cause(_Answer):
    """How an agent ended."""

    kind: ExitKind
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    log_tail: tuple[str, ...] = ()
    spool: str | None = None
    restarted: bool = False
    """The machine was, since it ran."""

    def as_exit_cause(self) -> ExitCause:
        """The cause in the words of the contract."""
        return ExitCause(
            self.kind,
            self.exit_code,
            self.signal,
            self.detail,
            self.log_tail,
            self.spool,
            with_machine=self.restarted,
        )


class Ended(_Answer):
    """To `exit-cause`; no cause while it runs."""

    cause: Cause | None


class Lines(_Answer):
    """To `logs`."""

    lines: tuple[str, ...]


class Stopped(_Answer):
    """To `stop`; whether there was anything to stop."""

    found: bool


class Hello(_Answer):
    """To `hello`: a sign of life; `clock` in epoch seconds, names as Python's `sys` has them."""

    boot_id: str
    clock: float
    hostname: str
    system: str
    machine: str
    cpus: int
    memory_bytes: int
    free_bytes: int


class Checked(_Answer):
    """To `check`; per executable why it cannot be run, and the cgroup version that can be used."""

    python: str
    cgroups: int | None
    scopes: bool = False
    """Whether the user's systemd makes scopes; only looked at where no cgroup can be made."""
    free_bytes: int
    runtime: str | None = None
    """The container runtime that the user may use; only looked for when asked."""
    executables: Mapping[str, str | None]


def reference(machine_id: str, folder: str, process: Process | None) -> dict[str, str]:
    """What a spawn's row keeps of the compute."""
    where = {"machine": machine_id, "folder": folder}
    if process is None:
        return where
    return {
        **where,
        "pid": str(process.pid),
        "start_ticks": str(process.start_ticks),
        "boot_id": process.boot_id,
    }
