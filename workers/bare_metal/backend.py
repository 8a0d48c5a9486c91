"""Agents as supervised processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from kici_scaler.domain.scalers import Scaler
from workers.bare_metal import answers
from workers.bare_metal.boxed import any_boxed, box_of, is_boxed
from workers.bare_metal.checks import BUILTIN_AGENT, executables_of, findings_of, needs_agent
from workers.bare_metal.host import Answer, Host, LocalHost
from workers.bare_metal.ssh.host import SshHost
from workers.bare_metal.ssh.link import Link
from workers.bare_metal.ssh.target import Target
from workers.contract import (
    CAPTURED_LINES,
    BackendContext,
    ComputeRef,
    Deadline,
    ExitCause,
    Finding,
    FoundCompute,
    LifecycleKind,
    SpawnedCompute,
    SpawnOrder,
    failure_detail,
)
from workers.environment import (
    agent_environment,
    label_set_environment,
    only_forwards,
    without_own,
)
from workers.errors import NotDone, NotOwner, OutcomeUnknown, Permanent

GRACE_SECONDS = 5.0
"""From TERM to KILL; the reference's number."""

MOST_PROCESSES = 4096
"""Of one agent, threads included, where limits are enforced; as containers have it."""

WATCH_SECONDS = 0.2
"""How long a start is watched for an agent that ends at once."""

_log = structlog.get_logger()


def open_backend(context: BackendContext) -> BareMetalBackend:
    """The backend on the worker's own host."""
    host = LocalHost(context.state_dir / "bare-metal", context.ambient)
    return BareMetalBackend(context, host)


def open_remote(context: BackendContext, entry: Mapping[str, object]) -> BareMetalBackend:
    """The backend on a machine reached by SSH; the worker's own environment stays here.

    Args:
        entry: the machine, as a `machines` entry of the scaler file describes it.
    """
    return on_link(context, Link(Target.parse(entry)))


def on_link(context: BackendContext, link: Link) -> BareMetalBackend:
    """The same, over connections that are there."""
    forwards = only_forwards(context.ambient)
    return BareMetalBackend(replace(context, ambient=forwards), SshHost(link))


class BareMetalBackend:
    """Starts each agent through the supervisor of its machine.

    Agents run with the rights of the worker's user, or of the user that the worker logs in
    as: for trusted jobs only.
    """

    def __init__(self, context: BackendContext, host: Host) -> None:
        self._context = context
        self._host = host

    def prepare(self, scalers: Sequence[Scaler], deadline: Deadline) -> None:
        """Put the supervisor in its place and see it answer."""
        self._read("check", {"executables": []}, deadline)

    def check(self, scalers: Sequence[Scaler], deadline: Deadline) -> tuple[Finding, ...]:
        asked = {
            "executables": sorted(executables_of(scalers, self._context.ambient)),
            "containers": any(map(any_boxed, scalers)),
        }
        checked = answers.Checked.model_validate(self._read("check", asked, deadline))
        if any(needs_agent(each) for scaler in scalers for each in scaler.label_sets):
            self._agent_command(deadline)
        return findings_of(scalers, checked, self._context.ambient, is_here=self._host.is_here)

    def hello(self, deadline: Deadline) -> answers.Hello:
        """A sign of life of the machine, and what it is.

        Raises:
            NotDone: it gave none.
        """
        return answers.Hello.model_validate(self._read("hello", {}, deadline))

    def close(self) -> None:
        """Let go of connections; the next call opens them again."""
        self._host.close()

    def spawn(self, order: SpawnOrder, deadline: Deadline) -> SpawnedCompute:
        try:
            return self._spawn(order, deadline)
        except (NotDone, Permanent) as error:
            order.tell(LifecycleKind.FAILED, failure_detail(str(error), error.log_tail))
            raise

    def _spawn(self, order: SpawnOrder, deadline: Deadline) -> SpawnedCompute:
        if not order.still_wanted():
            raise NotDone(f"{order.agent_id} is no longer wanted")
        asked = self._start_content(order, deadline)
        started = answers.Started.model_validate(self._host.ask("start", asked, deadline))
        for warning in started.warnings:
            _log.warning(warning, agent_id=order.agent_id, scaler=order.scaler)
        order.tell(LifecycleKind.READY, f"process {started.process.pid}")
        order.tell(LifecycleKind.CONNECTING, f"connecting to {order.gateway_url}")
        ref = answers.reference(self._context.machine.id, started.folder, started.process)
        return SpawnedCompute(order.agent_id, ref)

    def _start_content(self, order: SpawnOrder, deadline: Deadline) -> dict[str, object]:
        return {
            **self._what(order, deadline),
            "installation_id": order.installation_id,
            "agent_id": order.agent_id,
            "token": order.lease_token,
            "scaler": order.scaler,
            "job_id": order.job_id,
            "run_id": order.run_id,
            "agent_token": order.agent_token,
            "environment": self._environment(order),
            "limits": _limits(order),
            "watch_seconds": WATCH_SECONDS,
        }

    def _what(self, order: SpawnOrder, deadline: Deadline) -> dict[str, object]:
        """The program, or the container."""
        program = order.label_set.text("binaryPath")
        if is_boxed(order.label_set):
            image = order.job_image or order.label_set.text("image")
            order.tell(LifecycleKind.PROVISIONING, f"starting a container of {image}")
            return {"command": [], "container": box_of(order, self._agent_file(deadline))}
        if not program:
            raise Permanent(
                f"label set {order.label_set.index} of `{order.scaler}` names no program",
                hint="set `binaryPath` on the label set",
            )
        order.tell(LifecycleKind.PROVISIONING, f"starting {program}")
        is_ours = program == BUILTIN_AGENT
        return {"command": self._agent_command(deadline) if is_ours else [program]}

    def _environment(self, order: SpawnOrder) -> dict[str, str]:
        given = agent_environment(order, "bare-metal")
        if not is_trusted(order):
            return given
        _log.info("the agent is given the worker's environment", agent_id=order.agent_id)
        return {**without_own(self._context.ambient), **given}

    def destroy(self, agent: ComputeRef, deadline: Deadline) -> None:
        self._stop(agent, deadline, only_found=False)

    def reclaim(self, agent: ComputeRef, deadline: Deadline) -> bool:
        return self._stop(agent, deadline, only_found=True)

    def _stop(self, agent: ComputeRef, deadline: Deadline, *, only_found: bool) -> bool:
        asked = {
            **_name(agent),
            "token": agent.lease_token,
            "grace_seconds": GRACE_SECONDS,
            "only_found": only_found,
        }
        answer = self._host.ask("stop", asked, deadline)
        return answers.Stopped.model_validate(answer).found

    def inventory(self, installation_id: str, deadline: Deadline) -> tuple[FoundCompute, ...]:
        asked = {"installation_id": installation_id}
        listed = answers.Listed.model_validate(self._read("list", asked, deadline))
        for each in listed.unreadable:
            _log.error("an agent's record cannot be read", record=each)
        return tuple(each.as_found(self._context.machine.id) for each in listed.agents)

    def logs(self, agent: ComputeRef, last_lines: int, deadline: Deadline) -> tuple[str, ...]:
        asked = {**_name(agent), "last_lines": last_lines}
        return answers.Lines.model_validate(self._read("logs", asked, deadline)).lines

    def exit_cause(self, agent: ComputeRef, deadline: Deadline) -> ExitCause | None:
        asked = {**_name(agent), "last_lines": CAPTURED_LINES}
        cause = answers.Ended.model_validate(self._read("exit-cause", asked, deadline)).cause
        return cause.as_exit_cause() if cause else None

    def _agent_command(self, deadline: Deadline) -> list[str]:
        """Putting it there starts nothing: without an answer, nothing was done."""
        try:
            return self._host.agent_command(deadline)
        except OutcomeUnknown as error:
            raise NotDone(str(error)) from error

    def _agent_file(self, deadline: Deadline) -> str:
        try:
            return self._host.agent_file(deadline)
        except OutcomeUnknown as error:
            raise NotDone(str(error)) from error

    def _read(self, command: str, content: Mapping[str, object], deadline: Deadline) -> Answer:
        """Ask what changes nothing: without an answer, nothing was done."""
        try:
            return self._host.ask(command, content, deadline)
        except (OutcomeUnknown, NotOwner) as error:
            raise NotDone(str(error)) from error


def is_trusted(order: SpawnOrder) -> bool:
    """Whether the agent gets the worker's whole environment: `KICI_TRUSTED_ENV` is `true`."""
    asked = {**order.environment, **label_set_environment(order)}
    return asked.get("KICI_TRUSTED_ENV") == "true"


def _name(agent: ComputeRef) -> dict[str, object]:
    return {"installation_id": agent.installation_id, "agent_id": agent.agent_id}


def _limits(order: SpawnOrder) -> dict[str, int | None]:
    """Limits for the host to enforce; none unless the scaler asks for it."""
    enforced = order.options.get("enforceCgroups") is True or is_boxed(order.label_set)
    if not enforced or not order.limits.is_declared:
        return {}
    return {
        "memory_bytes": order.limits.memory_bytes,
        "cpu_millis": order.limits.cpu_millis,
        "processes": MOST_PROCESSES,
    }
