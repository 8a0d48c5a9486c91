"""Which faults belong together, for runs that choose among them."""

from __future__ import annotations

import os

from tests.faults import faults
from tests.faults.faults import Fault, Toll
from tests.support.tcp_proxy import Mode

SEED = int(os.environ.get("KICI_FAULT_SEED", "7"))
"""What decides the order of the faults, where a test leaves it to chance."""


def process_faults() -> tuple[Fault, ...]:
    """Deaths, restarts and freezes of our own processes."""
    return (
        faults.kill_role("control"),
        faults.kill_role("bare-metal"),
        faults.kill_role("gateway"),
        faults.kill_role("beat"),
        faults.restart_role("bare-metal"),
        faults.restart_role("gateway"),
        faults.freeze_role("bare-metal", 9),
        faults.freeze_role("control", 5),
        faults.die_at_checkpoint(),
        faults.die_at_checkpoint(),
    )


def broker_faults() -> tuple[Fault, ...]:
    """What Redis and the way to it can do."""
    return (
        faults.empty_redis(),
        faults.kill_server("redis"),
        faults.drop_tasks(),
        faults.double_tasks(),
        faults.cut_off("redis", Mode.RESET, 2),
        faults.cut_off("redis", Mode.SWALLOW, 4),
        faults.cut_off("redis", None, 2),
        faults.lose_answer("redis", b"LPUSH"),
        faults.lose_answer("redis", b"SET"),
    )


def database_faults() -> tuple[Fault, ...]:
    """What Postgres and the way to it can do."""
    return (
        faults.kill_server("postgres"),
        faults.cut_off("postgres", Mode.RESET, 2),
        faults.cut_off("postgres", Mode.SWALLOW, 4),
        faults.cut_off("postgres", None, 3),
        faults.slow("postgres", 3),
        faults.lose_answer("postgres", b"COMMIT", times=3),
        faults.lose_request("postgres", b"COMMIT", times=3),
    )


def everything(toll: Toll) -> tuple[Fault, ...]:
    """Every fault there is, agents' deaths (kept in the toll) too."""
    return (
        *process_faults(),
        *broker_faults(),
        *database_faults(),
        faults.kill_agent(toll),
    )
