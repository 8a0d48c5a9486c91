"""What the gateway says about requests and agents, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kici_scaler.cli.operator_client import OperatorClient


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """A request that is not over; `reason` says why it waits."""

    job_id: str
    state: str
    reason: str
    agent_id: str | None


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """A live agent and its job."""

    agent_id: str
    state: str
    job_id: str | None


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything that is not over."""

    requests: tuple[RequestSeen, ...]
    agents: tuple[AgentSeen, ...]

    @property
    def is_spawning(self) -> bool:
        """Whether a worker is starting an agent right now."""
        return any(agent.state == "spawning" for agent in self.agents)


def look(gateway: OperatorClient) -> Sight:
    """Ask for what there is.

    Raises:
        ClientError: the gateway does not answer.
    """
    return Sight(
        tuple(_request(each) for each in gateway.get("/v1/requests")["requests"]),
        tuple(_agent(each) for each in gateway.get("/v1/agents")["agents"]),
    )


def process_of(gateway: OperatorClient, agent_id: str) -> int:
    """The process id that an agent told when it registered."""
    return int(gateway.get(f"/v1/agents/{agent_id}")["agent"]["facts"]["pid"])


def _request(found: Mapping[str, Any]) -> RequestSeen:
    return RequestSeen(found["jobId"], found["state"], found["reason"], found["agentId"])


def _agent(found: Mapping[str, Any]) -> AgentSeen:
    return AgentSeen(found["agentId"], found["state"], found["jobId"])
