"""The whole system with Linux guests: what jobs, outcomes and the machine show."""

from __future__ import annotations

import json
import os
import signal

import pytest

from kici_scaler.embedded.child import State
from tests.e2e.linux_guest import whole as world
from tests.e2e.linux_guest.whole import WORKER, Whole
from tests.support.network_places import Place
from tests.support.waiting import eventually
from workers.firecracker import processes
from workers.firecracker.layout import Layout

_SHOW = """
echo "kernel $(uname -s)"
echo "root $(awk '$2 == "/" { print $3 }' /proc/mounts | tail -n 1)"
echo kept > /etc/written && echo "wrote $(cat /etc/written)"
echo "told by $TOLD_BY"
echo "files $(ls /run/kici-agent | tr '\\n' ' ')"
echo "name $(cat /proc/sys/kernel/hostname)"
echo waiting
sleep 20
exit 7
"""

_ASK = """
import json, urllib.request
def ask(method, path, **headers):
    asked = urllib.request.Request("http://169.254.169.254" + path, method=method, headers=headers)
    return urllib.request.urlopen(asked, timeout=5).read().decode()
try:
    ask("PUT", "/latest/api/token", **{"X-metadata-token-ttl-seconds": "60"})
    print("closed: no")
except OSError:
    print("closed: yes")
import subprocess
subprocess.run(["ip", "route", "replace", "169.254.169.254/32", "dev", "eth0"], check=True)
subprocess.run(["nft", "flush", "ruleset"], check=True)
session = ask("PUT", "/latest/api/token", **{"X-metadata-token-ttl-seconds": "60"})
headers = {"X-metadata-token": session, "Accept": "application/json"}
print("told:", ask("GET", "/latest/meta-data", **headers))
"""

_REACH = """
import json, socket, sys
def reaches(address, port):
    try:
        socket.create_connection((address, port), 20 if port == 80 else 3).close()
    except OSError:
        return False
    return True
for address, port in json.loads(sys.argv[1]):
    print(address, port, reaches(address, port))
"""


def test_a_job_runs_in_a_guest_that_is_gone_afterwards(whole: Whole) -> None:
    whole.submit("plain", _SHOW)
    agent_id = whole.agent_of("plain")
    eventually(lambda: "waiting" in whole.site.printed("plain"), world.LONG)

    seen = whole.metadata(agent_id)
    result = whole.result("plain")

    assert (result.state, result.exit_code) == ("failed", 7)
    assert whole.site.printed("plain")[:6] == [
        "kernel Linux",
        "root overlay",
        "wrote kept",
        "told by the label set",
        "files state ",
        f"name {agent_id}",
    ]
    assert seen == {"latest": {"meta-data": {}}}
    whole.expect_nothing_left()
    assert whole.outcome(agent_id)["destroyReason"] == "job-complete"


def test_a_job_that_opens_the_metadata_service_again_finds_nothing(whole: Whole) -> None:
    whole.submit("curious", f"sleep 2; exec python3 -c '{_ASK}'")

    assert whole.result("curious").succeeded, whole.site.printed("curious")

    assert whole.site.printed("curious") == ["closed: yes", "told: {}"]
    whole.expect_nothing_left()


def test_a_guest_reaches_the_world_and_no_private_place(whole: Whole) -> None:
    closed = [
        (world.SIBLING, world.PORT),
        (world.OWN_ADDRESS, world.PORT),
        ("192.0.2.2", world.PORT),
        (world.METADATA, world.PORT),
        *((address, world.PORT) for address in world.PRIVATE),
    ]
    for address, port in closed:
        # From the machine itself each can be reached: who cannot is kept from it by rules.
        assert _reaches_from_here(address, port), address
    asked = json.dumps([(world.PUBLIC, 80), *closed])
    whole.submit("explorer", f"exec python3 -c '{_REACH}' '{asked}'")

    assert whole.result("explorer").succeeded

    assert whole.site.printed("explorer") == [
        f"{world.PUBLIC} 80 True",
        *(f"{address} {port} False" for address, port in closed),
    ]
    whole.expect_nothing_left()


def _reaches_from_here(address: str, port: int) -> bool:
    return Place(os.getpid()).reaches(address, port, 5)


def test_a_job_outlives_its_worker(whole: Whole) -> None:
    whole.submit("long", "echo begun; sleep 15; echo done")
    whole.agent_of("long")
    supervisor = whole.site.installation.supervisor
    before = supervisor.starts(WORKER)

    whole.site.installation.kill(WORKER)

    assert whole.result("long").succeeded
    assert whole.site.printed("long") == ["begun", "done"]
    eventually(
        lambda: supervisor.starts(WORKER) > before and supervisor.states()[WORKER] is State.READY,
        world.LONG,
    )
    whole.expect_nothing_left()


def test_a_job_whose_microvm_is_killed_fails_with_the_signal(whole: Whole) -> None:
    whole.submit("struck", "echo begun; sleep 600")
    agent_id = whole.agent_of("struck")

    for each in processes.of(Layout(whole.base, agent_id)):
        if each.is_vmm:
            os.kill(each.pid, signal.SIGKILL)
    result = whole.result("struck")

    assert result.state == "failed"
    assert "ended by signal 9" in str(result.error)
    whole.expect_nothing_left()
    assert whole.outcome(agent_id)["exitCause"]["signal"] == 9


def test_a_job_whose_guest_cannot_boot_is_told_why(whole: Whole) -> None:
    whole.submit("unlucky", "echo never", "linux", "broken")

    told = eventually(
        lambda: whole.site.scaler.get("unlucky").last_provisioning_error or "",
        world.LONG,
        why=lambda: whole.site.installation.log(WORKER)[-3000:],
    )
    whole.site.scaler.cancel("unlucky")

    assert "kernel-panic: its kernel panicked: " in told
    whole.expect_nothing_left()
    log = whole.site.installation.log(WORKER)
    assert "Kernel panic" in log
    assert "/dev/vda" in log


@pytest.mark.long
def test_guests_that_come_and_go_leave_nothing(whole: Whole) -> None:
    for number in range(5):
        whole.submit(f"each-{number}", f"echo {number}")

    for number in range(5):
        assert whole.result(f"each-{number}").succeeded
        assert whole.site.printed(f"each-{number}") == [str(number)]
    whole.expect_nothing_left()
