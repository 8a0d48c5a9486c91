"""A pid names nobody: no process that is not the agent's is ever signalled."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.integration.workers.bare_metal.conftest import Site, soon
from tests.integration.workers.bare_metal.test_ending import WAIT
from tests.support.waiting import eventually
from workers.bare_metal.supervisor import processes
from workers.contract import ExitKind

Bystander = subprocess.Popen[bytes]


@pytest.fixture
def bystander() -> Iterator[Bystander]:
    """A process of somebody else, that leads a session and notes every TERM."""
    source = (
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('TERM', flush=True))\n"
        "print('up', flush=True)\n"
        "while True: signal.pause()"
    )
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", source], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    yield process
    process.kill()
    process.wait()


def _was_left_alone(bystander: Bystander) -> bool:
    """Whether it still runs and got no TERM: the first one it hears is ours."""
    if bystander.poll() is not None:
        return False
    assert bystander.stdout is not None
    bystander.kill()
    bystander.wait()
    return bystander.stdout.read() == b""


def test_a_recycled_pid_is_not_signalled(site: Site, bystander: Bystander) -> None:
    agent_id, _ = site.run(WAIT)
    site.printed(agent_id, "up")
    site.monitor(agent_id).kill()
    site.process(agent_id).kill()
    eventually(lambda: not site.living())
    site.rewrite(agent_id, "process.json", pid=bystander.pid)
    site.rewrite(agent_id, "monitor.json", pid=bystander.pid)

    cause = site.cause(agent_id)
    site.destroy(agent_id)

    assert cause.kind is ExitKind.VANISHED
    assert _was_left_alone(bystander)


def test_a_pid_of_an_earlier_boot_is_not_signalled(site: Site, bystander: Bystander) -> None:
    agent_id, _ = site.run(WAIT)
    site.printed(agent_id, "up")
    site.monitor(agent_id).kill()
    site.process(agent_id).kill()
    eventually(lambda: not site.living())
    start_ticks = processes.identify(bystander.pid).start_ticks
    site.rewrite(
        agent_id,
        "process.json",
        pid=bystander.pid,
        start_ticks=start_ticks,
        boot_id="another boot",
    )

    cause = site.cause(agent_id)
    [found] = site.backend.inventory(site.installation_id, soon())
    site.destroy(agent_id)

    assert (cause.kind, cause.detail) == (ExitKind.VANISHED, "the machine was restarted")
    assert not found.running
    assert _was_left_alone(bystander)


def test_a_signal_goes_to_the_very_process_or_to_nobody(bystander: Bystander) -> None:
    real = processes.identify(bystander.pid)
    another = real._replace(start_ticks=real.start_ticks + 1)

    processes.send(another, signal.SIGKILL)
    assert real.is_alive
    assert not another.is_alive

    processes.send(real, signal.SIGKILL)
    bystander.wait()
    assert not real.is_alive
    processes.send(real, signal.SIGKILL)


def test_a_process_that_only_waits_to_be_reaped_is_not_alive(bystander: Bystander) -> None:
    real = processes.identify(bystander.pid)

    bystander.kill()

    eventually(lambda: psutil.Process(bystander.pid).status() == psutil.STATUS_ZOMBIE)
    assert not real.is_alive
    assert bystander.pid not in processes.table()
