"""What is written on a container, so that it is known without anything else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kici_scaler.domain.labels import normalise
from workers.contract import SpawnOrder
from workers.network.access import Owner

MANAGED = "kici-managed"
INSTALLATION = "kici-installation"
SCALER = "kici-scaler-name"
AGENT = "kici-agent-id"
LABELS = "kici-labels"
JOB = "kici-bound-job-id"
RUN = "kici-run-id"
TOKEN = "kici-lease-token"
POLICY = "kici-network-policy"
"""What the agent may reach, as JSON: rules that were lost can be made again from it."""
PURPOSE = "kici-purpose"
"""What a container or volume that is no agent is for."""
BRIDGE = "kici-bridge"
"""On the network: the bridge it lies on, which not every runtime tells."""

YES = "true"

_UNFIT = re.compile(r"[^a-zA-Z0-9_.-]")


def container_name(owner: Owner) -> str:
    """The one name of an agent's container."""
    return _UNFIT.sub("-", f"kici-{owner.installation_id}-{owner.agent_id}")


def agent_marks(order: SpawnOrder, policy: str | None) -> dict[str, str]:
    """The labels of an agent's container."""
    known = {JOB: order.job_id, RUN: order.run_id, POLICY: policy}
    return {
        MANAGED: YES,
        INSTALLATION: order.installation_id,
        SCALER: order.scaler,
        AGENT: order.agent_id,
        LABELS: normalise(order.labels),
        TOKEN: str(order.lease_token),
        **{key: value for key, value in known.items() if value is not None},
    }


def owner_in(marks: Mapping[str, str]) -> Owner | None:
    """Whose agent's container it is; None for everything else."""
    if marks.get(MANAGED) != YES or not marks.get(INSTALLATION) or not marks.get(AGENT):
        return None
    return Owner(marks[INSTALLATION], marks[AGENT])


def token_in(marks: Mapping[str, str]) -> int:
    """The lease token it was made with; 0 when none is written."""
    text = marks.get(TOKEN, "")
    return int(text) if text.isdecimal() else 0
