"""Live rows to measure among: agents that run jobs, as many of each scaler."""

from __future__ import annotations

from sqlalchemy import text

from bench.place import KIND, MACHINE, Place
from kici_scaler.store.engine import transaction
from kici_scaler.store.requests import NewRequest

_REQUESTS = """
    INSERT INTO scale_requests (job_id, run_id, digest, state, labels, max_requeues,
                                sealed_payload, routed_scaler, decided_at)
    SELECT 'live-' || n, 'bench', 'digest', 'running',
           ARRAY['linux', 'pool-' || n % :scalers], 2,
           jsonb_build_object('keyId', 'key', 'sealed', repeat('x', 300)),
           'pool-' || n % :scalers, clock_timestamp()
    FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n
"""
_SPAWNS = """
    INSERT INTO spawns (agent_id, state, scaler, backend_type, revision_id, label_set_index,
        label_set, agent_labels, gate, machine_id, warm, spawn_slots, spawn_timeout_seconds,
        cpu_millis, memory_bytes, job_id, run_id, owner, adopter, backend_ref, lease_token,
        attempts, created_with, spawning_at, booting_at, idle_at, busy_at, deadline_at, due_at)
    SELECT 'scaler-' || :kind || '-' || lpad(to_hex(n), 12, '0'), 'busy',
        'pool-' || n % :scalers, :kind, (SELECT id FROM config_revisions WHERE active), 0,
        ARRAY['linux', 'pool-' || n % :scalers],
        ARRAY['linux', 'pool-' || n % :scalers, 'kici:os:linux', 'kici:arch:x64'], '{}',
        :machine, false, 32, 300, 1000, 268435456, 'live-' || n, 'bench', 'bench', 'bench',
        '{"pid": "1"}', nextval('lease_tokens'), 1, 1,
        now, now, now, now, now + interval '1 day', now + interval '1 day'
    FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n, clock_timestamp() AS now
"""

_AGENTS = """
    INSERT INTO agents (agent_id, spawn_id, labels, gate, gateway, connection_number)
    SELECT agent_id, agent_id, agent_labels, gate, :gateway, 1 FROM spawns
    WHERE state = 'busy' AND agent_id NOT IN (SELECT agent_id FROM agents)
"""


def populate(place: Place, count: int, *, scalers: int, first: int = 1) -> None:
    """Make `count` more agents busy, numbered from `first` on, and tell the planner."""
    values = {"first": first, "last": first + count - 1, "scalers": scalers}
    with transaction(place.engine) as connection:
        connection.execute(text("SET LOCAL statement_timeout = '5min'"))
        connection.execute(text(_REQUESTS), values)
        connection.execute(text(_SPAWNS), {**values, "kind": KIND, "machine": MACHINE})
    place.vacuum()


def connect(place: Place, gateway: str) -> None:
    """Have all that are not yet be connected to a gateway, and tell the planner."""
    with transaction(place.engine) as connection:
        connection.execute(text("SET LOCAL statement_timeout = '5min'"))
        connection.execute(text(_AGENTS), {"gateway": gateway})
    place.vacuum()


def forget_undecided(place: Place) -> None:
    """Take back everything that is not part of the population."""
    with transaction(place.engine) as connection:
        connection.execute(text("DELETE FROM spawns WHERE state = 'reserved'"))
        connection.execute(text("DELETE FROM scale_requests WHERE state <> 'running'"))


def requests(name: str, count: int, *, scalers: int) -> list[NewRequest]:
    """Requests that the scalers serve in turn, with a sealed payload of an ordinary size."""
    return [
        NewRequest(
            job_id=f"{name}-{number}",
            run_id="bench",
            digest="digest",
            labels=("linux", f"pool-{number % scalers}"),
            sealed_payload={"keyId": "key", "sealed": "x" * 300},
        )
        for number in range(count)
    ]
