"""The roles of an installation as children of a supervisor."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx

from kici_scaler.embedded import programs
from kici_scaler.embedded.child import Child
from kici_scaler.embedded.folder import DataFolder
from kici_scaler.embedded.process import Command, StopStep
from kici_scaler.embedded.programs import BEAT, FLOWER, GATEWAY

WORKER_TIER: Final = 1
FRONT_TIER: Final = 2
"""Who hands out work stops before those who do it."""

WORKER_STOP: Final = (StopStep(signal.SIGTERM, 30.0),)
"""A warm shutdown lets running steps end; a longer one is taken up again from its row."""
FRONT_STOP: Final = (StopStep(signal.SIGTERM, 15.0),)


@dataclass(frozen=True, slots=True)
class RoleContext:
    """What the roles of one installation share.

    Attributes:
        roles: which to start, names of `programs.ROLES`.
        environment: what every role sees besides this process's own environment.
        concurrency: slots of a worker, by role, where not the default.
    """

    folder: DataFolder
    roles: tuple[str, ...]
    machine_id: str
    host: str
    flower_port: int
    flower_password: str = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    concurrency: Mapping[str, int] = field(default_factory=dict)


def role_children(context: RoleContext) -> list[Child]:
    """The children for `context.roles`, in that order."""
    return [_child(context, role) for role in context.roles]


def _child(context: RoleContext, role: str) -> Child:
    if role == BEAT:
        return by_ready_file(context, role, programs.beat_program(context.folder.run))
    if role == GATEWAY:
        return by_ready_file(context, role, programs.gateway_program())
    if role == FLOWER:
        return _flower(context)
    return worker_child(context, role, role)


def worker_child(context: RoleContext, kind: str, name: str) -> Child:
    """A worker of that kind; several on one machine differ by their names."""
    program = programs.worker_program(kind, context.machine_id, context.concurrency.get(kind))
    return by_ready_file(
        context,
        name,
        program,
        extra=programs.worker_environment(kind),
        tier=WORKER_TIER,
        stop=WORKER_STOP,
    )


def by_ready_file(
    context: RoleContext,
    role: str,
    program: tuple[str, ...],
    *,
    extra: Mapping[str, str] | None = None,
    tier: int = FRONT_TIER,
    stop: tuple[StopStep, ...] = FRONT_STOP,
) -> Child:
    """A role that creates the file `KICI_READY_FILE` once it does its work."""
    mark = context.folder.ready_file(role)

    def command() -> Command:
        mark.unlink(missing_ok=True)
        return _command(context, program, {**(extra or {}), "KICI_READY_FILE": str(mark)})

    return Child(name=role, command=command, is_ready=mark.exists, stop=stop, tier=tier)


def _flower(context: RoleContext) -> Child:
    program = programs.flower_program(context.host, context.flower_port)
    extra = {**programs.flower_environment(context.flower_password), **programs.QUIET_FLOWER}
    return Child(
        name=FLOWER,
        command=lambda: _command(context, program, extra),
        is_ready=answers(f"http://{context.host}:{context.flower_port}/healthcheck"),
        stop=FRONT_STOP,
        tier=FRONT_TIER,
    )


def answers(url: str) -> Callable[[], bool]:
    """A check whether a GET there succeeds."""

    def ask() -> bool:
        try:
            return httpx.get(url, timeout=1.0).is_success
        except httpx.HTTPError:
            return False

    return ask


def _command(context: RoleContext, program: tuple[str, ...], extra: Mapping[str, str]) -> Command:
    return Command(
        argv=program,
        environment={**programs.QUIET_AS_ROOT, **os.environ, **context.environment, **extra},
        directory=context.folder.home,
    )
