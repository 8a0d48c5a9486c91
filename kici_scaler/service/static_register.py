"""An agent that no scaler made connects, with an operator's key.

Crash table: as for every registration; nothing here is torn down, whatever happens.
"""

from __future__ import annotations

import json

from sqlalchemy import Connection

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.domain.labels import canonical, is_reserved
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import keys
from kici_scaler.service.hello import SELF_REPORTED, Hello, Refusal, Refused, Welcome
from kici_scaler.store import settings, static_agents, static_jobs
from kici_scaler.store.api_keys import ApiKeyRow


def judge(connection: Connection, gateway: str, hello: Hello) -> Welcome | Refused:
    """Adopt it for this gateway incarnation, or say why not.

    The key decides, on each connection anew: one that was revoked is worth nothing, also to
    an agent that returns.
    """
    key = None if hello.token is None else keys.known(connection, hello.token)
    if key is None or key.scope is not KeyScope.AGENT:
        return Refused(
            Refusal.BAD_TOKEN,
            f"no scaler made agent {hello.agent_id}, and it shows no valid key of scope agent",
        )
    labels = tuple(dict.fromkeys(canonical(label) for label in hello.labels))
    foreign = [label for label in labels if not _may_have(label, key)]
    if foreign:
        return Refused(
            Refusal.BAD_LABELS,
            f"key {key.name} does not allow the labels {', '.join(sorted(foreign)[:5])}",
        )
    return _adopt(connection, gateway, hello, labels, key.gate)


def _may_have(label: str, key: ApiKeyRow) -> bool:
    """Without a list of its own a key allows every label that is not derived."""
    if label.startswith(SELF_REPORTED):
        return True
    return not is_reserved(label) if key.labels is None else label in key.labels


def _adopt(
    connection: Connection,
    gateway: str,
    hello: Hello,
    labels: tuple[str, ...],
    gate: tuple[str, ...],
) -> Welcome | Refused:
    connected = static_agents.connect(
        connection,
        agent_id=hello.agent_id,
        labels=labels,
        gate=gate,
        facts=json.dumps(dict(hello.facts)),
        gateway=gateway,
        connection_number=hello.connection_number,
        holds=hello.claimed_job,
    )
    if not connected:
        return Refused(Refusal.SUPERSEDED, "a newer connection of this agent is open")
    windows = settings.windows(connection)
    job = static_jobs.job_of(
        connection, hello.agent_id, offer_seconds=windows.offer_timeout_seconds
    )
    if hello.claimed_job is not None and (job is None or job.job_id != hello.claimed_job):
        grace = windows.cancel_grace_seconds
        static_agents.stop(connection, hello.agent_id, hello.claimed_job, seconds=grace)
    state = SpawnState.BUSY if job is not None and job.running else SpawnState.IDLE
    return Welcome(
        agent_id=hello.agent_id,
        state=state,
        gate=gate,
        labels=labels,
        warm=False,
        job_id=None if job is None else job.job_id,
        run_id=None if job is None else job.run_id,
        spawn=None,
    )
