"""Shapes of agents, alive and gone, camelCase on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Self

from pydantic import Field

from kici_scaler.domain.resources import Need
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway.models import EventView, Shape
from kici_scaler.gateway.models_status import Amounts
from kici_scaler.service.operate import AgentStory
from kici_scaler.store.agent_views import AgentView as AgentRow
from kici_scaler.store.outcomes import OutcomeRow
from kici_scaler.store.static_agents import StaticView


class AgentView(Shape):
    """A live agent. `connected` is whether a gateway sees it; `timings` is when it entered
    each state."""

    agent_id: str
    state: SpawnState
    scaler: str
    backend_type: str
    machine_id: str | None
    revision: int
    """The configuration that it was reserved under."""
    reserved_by: str | None = None
    """The process that reserved it."""
    label_set: list[str]
    labels: list[str]
    mandatory_labels: list[str]
    warm: bool
    resources: Amounts
    job_id: str | None
    run_id: str | None
    connected: bool
    gateway: str | None
    connection_number: int | None
    unseen_since: datetime | None
    facts: Mapping[str, Any] | None
    timings: Mapping[str, datetime]
    deadline_at: datetime | None
    destroy_reason: str | None
    condemned_why: str | None
    attempts: int

    @classmethod
    def of(cls, row: AgentRow) -> Self:
        """From its row."""
        return cls(
            agent_id=row.agent_id, state=row.state, scaler=row.scaler,
            backend_type=row.backend_type, machine_id=row.machine_id, revision=row.revision_id,
            reserved_by=row.reserved_by,
            label_set=list(row.label_set), labels=list(row.labels),
            mandatory_labels=list(row.gate), warm=row.warm,
            resources=Amounts.of(Need(row.cpu_millis, row.memory_bytes)),
            job_id=row.job_id, run_id=row.run_id,
            connected=row.gateway is not None and row.unseen_since is None,
            gateway=row.gateway, connection_number=row.connection_number,
            unseen_since=row.unseen_since, facts=row.facts, timings=row.timings,
            deadline_at=row.deadline_at, destroy_reason=row.destroy_reason,
            condemned_why=row.condemned_why, attempts=row.attempts,
        )  # fmt: skip


class StaticAgentView(Shape):
    """An agent that no scaler made. `state` is idle, offered, busy, or stopping (a job that is
    not its own any more)."""

    agent_id: str
    state: str
    labels: list[str]
    mandatory_labels: list[str]
    job_id: str | None
    run_id: str | None
    connected: bool
    gateway: str | None
    connection_number: int
    registered_at: datetime
    unseen_since: datetime | None
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, row: StaticView) -> Self:
        """From its row."""
        return cls(
            agent_id=row.agent_id, state=row.state, labels=list(row.labels),
            mandatory_labels=list(row.gate), job_id=row.job_id, run_id=row.run_id,
            connected=row.unseen_since is None, gateway=row.gateway,
            connection_number=row.connection_number, registered_at=row.registered_at,
            unseen_since=row.unseen_since, facts=row.facts,
        )  # fmt: skip


class OutcomeView(Shape):
    """What became of an agent, kept for a while after it is gone."""

    agent_id: str
    scaler: str
    backend_type: str
    machine_id: str | None
    reserved_by: str | None = None
    """The process that reserved it; null for one from before that was kept."""
    revision: int | None = None
    """The configuration that it was reserved under."""
    job_id: str | None
    run_id: str | None
    first_adopter: str | None
    destroy_reason: str | None
    condemned_why: str | None
    exit_cause: Mapping[str, Any] | None
    log_tail: list[str]
    timings: Mapping[str, datetime]
    failed: bool
    updated_at: datetime
    gone_at: datetime | None

    @classmethod
    def of(cls, row: OutcomeRow) -> Self:
        """From its row."""
        return cls(**asdict(row))


class AgentList(Shape):
    """Live agents oldest first, and ended ones newest first if they were asked for."""

    agents: list[AgentView]
    gone: list[OutcomeView] = Field(default_factory=list)
    static: list[StaticAgentView] = Field(default_factory=list)
    """Those that no scaler made."""


class AgentDetail(Shape):
    """Everything that is known of one agent."""

    agent_id: str
    agent: AgentView | None
    outcome: OutcomeView | None
    events: list[EventView]
    static: StaticAgentView | None = None

    @classmethod
    def of(cls, story: AgentStory) -> Self:
        """From what was read."""
        return cls(
            agent_id=story.agent_id,
            agent=None if story.live is None else AgentView.of(story.live),
            outcome=None if story.outcome is None else OutcomeView.of(story.outcome),
            events=[EventView.of(each) for each in story.events],
            static=None if story.static is None else StaticAgentView.of(story.static),
        )


class DestroyAnswer(Shape):
    """The state after a destroy was asked for; null once nothing is left."""

    agent_id: str
    state: SpawnState | None
