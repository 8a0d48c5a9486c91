"""Hard limits, and how an end under them is told."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from kici_scaler.domain.scalers import Amount
from tests.e2e.container.workshop import IDLE, Workshop, soon
from tests.support.waiting import eventually
from workers.container.plan import PIDS_LIMIT
from workers.contract import ExitCause, ExitKind, SpawnOrder
from workers.errors import BackendError, Permanent

MIB = 1 << 20

_HOG = "python3 -c 'kept = [bytearray(1 << 20) for _ in range(400)]'"

_FORK_BOMB = """
python3 -c '
import os, time
children = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except BlockingIOError:
        break
    children += 1
open("/harness/children.new", "w").write(str(children))
os.rename("/harness/children.new", "/harness/children")
time.sleep(60)
'
"""

_QUOTA = f"""
cd /sys/fs/cgroup
cat cpu.max > /harness/quota.new 2>/dev/null ||
    cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us > /harness/quota.new
mv /harness/quota.new /harness/quota
{IDLE}
"""
"""By control groups of version 2, else of version 1."""


def _ended(workshop: Workshop, order: SpawnOrder) -> ExitCause:
    """The cause of an agent's end; an end as soon as it was started leaves one too."""
    backend = workshop.open()
    with suppress(Permanent):
        backend.spawn(order, soon())
    cause = eventually(lambda: backend.exit_cause(workshop.ref(order), soon()), 30)
    assert cause is not None
    return cause


def test_whoever_passes_the_memory_limit_is_killed_and_said_to_be(workshop: Workshop) -> None:
    order = workshop.order(f"sleep 0.5; exec {_HOG}", limits=Amount(memory_bytes=64 * MIB))

    cause = _ended(workshop, order)

    assert (cause.kind, cause.signal) == (ExitKind.OUT_OF_MEMORY, 9)
    assert cause.detail == "killed for passing its memory limit of 64 MiB"


def test_an_agent_that_outlives_its_hungry_child_is_said_to_have_had_one(
    workshop: Workshop,
) -> None:
    order = workshop.order(f"sleep 0.5; {_HOG}; exit 0", limits=Amount(memory_bytes=64 * MIB))

    cause = _ended(workshop, order)

    assert (cause.kind, cause.exit_code) == (ExitKind.EXITED, 0)
    assert "was killed for passing its memory limit of 64 MiB" in cause.detail


def test_a_signal_is_told_as_one(workshop: Workshop) -> None:
    cause = _ended(workshop, workshop.order("sleep 0.5; exec sh -c 'kill -KILL $$; sleep 9'"))
    # The kernel shields the first process of a container from its own signals.
    assert cause.kind is ExitKind.EXITED

    order = workshop.order("sleep 600")
    backend = workshop.open()
    spawned = backend.spawn(order, soon())
    api = workshop.engine.client()
    api.kill(spawned.name, "SIGKILL")
    api.close()

    killed = eventually(lambda: backend.exit_cause(workshop.ref(order), soon()), 30)

    assert killed is not None
    assert (killed.kind, killed.signal) == (ExitKind.SIGNALLED, 9)


def test_a_fork_bomb_ends_at_the_limit_and_can_be_taken_away(workshop: Workshop) -> None:
    backend, order = workshop.open(), workshop.order(_FORK_BOMB)
    backend.spawn(order, soon())

    children = int(workshop.said("children", within=60))
    assert PIDS_LIMIT - 50 < children < PIDS_LIMIT

    backend.destroy(workshop.ref(order), soon())
    assert backend.inventory(workshop.installation_id, soon()) == ()


def test_processors_are_limited_by_the_kernel(workshop: Workshop) -> None:
    workshop.open().spawn(workshop.order(_QUOTA, limits=Amount(cpu_millis=500)), soon())

    quota, period = map(int, workshop.said("quota").split()[:2])

    assert quota / period == 0.5


def test_processors_beyond_the_machines_own_are_no_mistake(workshop: Workshop) -> None:
    backend, order = workshop.open(), workshop.order(limits=Amount(cpu_millis=64_000))
    spawned = backend.spawn(order, soon())

    api = workshop.engine.client()
    given = api.inspect_container(spawned.name)["HostConfig"]["NanoCpus"]
    cpus = api.info()["NCPU"]
    api.close()

    assert given == cpus * 1_000_000_000


@pytest.mark.parametrize("is_jobs_own", [True, False])
def test_a_limit_that_cannot_be_is_blamed_on_whoever_asked_for_it(
    workshop: Workshop, is_jobs_own: bool
) -> None:
    order = workshop.order(limits=Amount(memory_bytes=1 * MIB))
    if is_jobs_own:
        order = replace(order, limits=Amount(memory_bytes=2 * MIB))

    with pytest.raises(BackendError) as refusal:
        workshop.open().spawn(order, soon())

    assert refusal.value.job_caused is is_jobs_own
    assert workshop.open().inventory(workshop.installation_id, soon()) == ()
