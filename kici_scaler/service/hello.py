"""What an agent says when it connects, and what it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kici_scaler.domain.prespawned import is_prespawned
from kici_scaler.domain.scalers import BackendType
from kici_scaler.domain.spawn import BEFORE_REGISTRATION, SpawnState
from kici_scaler.store.agents import SpawnFacts

SELF_REPORTED = ("kici:os:", "kici:arch:", "kici:host:")
"""Labels an agent may add to those its token is bound to."""


class Refusal(StrEnum):
    """Why an agent may not stay; only `FOR_NOW` is worth coming back for."""

    BAD_TOKEN = "bad-token"
    BAD_LABELS = "bad-labels"
    UNOWNED = "unowned"
    """An id minted here that no spawn row stands for."""
    TOLD_TO_GO = "told-to-go"
    SUPERSEDED = "superseded"
    """A newer connection of this agent is known."""
    FOR_NOW = "for-now"
    """This gateway may not adopt at the moment."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What an agent says when it connects; the token itself is not repeated in logs."""

    agent_id: str
    labels: tuple[str, ...]
    connection_number: int
    facts: Mapping[str, object] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)
    resume_is_valid: bool = False
    """It presented the resume token of this very agent id."""
    claimed_job: str | None = None
    """The job it says that it has."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The agent is adopted; `job_id` is the job to offer it, or the one it runs already."""

    agent_id: str
    state: SpawnState | None
    gate: tuple[str, ...]
    labels: tuple[str, ...]
    warm: bool
    job_id: str | None
    run_id: str | None
    spawn: SpawnFacts | None

    @property
    def has_metadata(self) -> bool:
        """Whether its machine says what it needs to begin, its token too, for as long as that."""
        return self.spawn is not None and self.spawn.backend_type == BackendType.FIRECRACKER

    @property
    def is_newly_ready(self) -> bool:
        """Whether an agent started ahead of demand has just come: somebody may wait for it."""
        spawn = self.spawn
        return (
            spawn is not None
            and is_prespawned(warm=spawn.warm, job_id=spawn.job_id)
            and spawn.state in BEFORE_REGISTRATION
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """The agent may not stay."""

    why: Refusal
    message: str
