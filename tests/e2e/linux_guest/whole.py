"""A whole installation whose agents are Linux guests, and the world around its machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import text

from kici_scaler.client import JobRequest, JobResult, Payload
from tests.conformance.harness import soon
from tests.e2e.site import Site, open_site
from tests.support.firecracker import network_with_exit
from tests.support.linux_guest import FOLDER, MEMORY_MIB, make_programs
from tests.support.network_places import join, join_as_guest, listen, make_place
from tests.support.waiting import eventually
from workers.firecracker.api import FirecrackerApi
from workers.firecracker.layout import Layout
from workers.firecracker.links import opened
from workers.firecracker.names import TAP_PATTERN
from workers.host.host import STOCK_SECONDS
from workers.network.access import Owner, agent_access
from workers.network.isolation import MACHINE_LOCK, Isolation

WORKER = "firecracker"
ROLES = ("control", WORKER, "beat", "gateway")
BRIDGE, CIDR, OWN_ADDRESS = "kici-br0", "10.44.0.0/24", "10.44.0.1"
LONG = 150.0
"""Seconds in which a guest boots and does something on an otherwise idle machine."""
NEIGHBOUR = "somebody-else"
"""Whose the sibling is."""

PORT = 2222
"""Where everything in the world listens."""
SIBLING = "10.44.0.77"
PUBLIC = "203.0.113.1"
PRIVATE = ("10.99.0.1", "172.20.0.1", "192.168.7.1")
METADATA = "169.254.169.253"
"""Of the world, beside the guest's own."""


@dataclass(frozen=True)
class Whole:
    """An installation and the folder of its jails."""

    site: Site
    base: Path

    def submit(self, job_id: str, script: str, *labels: str) -> None:
        """Ask for a guest for a shell script."""
        payload = Payload(("sh", "-c", script))
        wanted = labels or ("linux", "vm")
        self.site.scaler.request(
            JobRequest(job_id=job_id, run_id="e2e", labels=wanted, payload=payload)
        )

    def result(self, job_id: str) -> JobResult:
        """Wait for a job's end."""
        return self.site.scaler.wait(job_id, 3 * LONG)

    def agent_of(self, job_id: str) -> str:
        """The agent that runs a job, once it does."""

        def busy() -> list[str]:
            return [
                each["agentId"]
                for each in self.site.agents()
                if each["jobId"] == job_id and each["state"] == "busy"
            ]

        return eventually(busy, LONG, why=lambda: self.site.installation.log(WORKER)[-3000:])[0]

    def metadata(self, agent_id: str) -> Mapping[str, Any]:
        """What the guest of an agent may read at this moment."""
        api = FirecrackerApi(Layout(self.base, agent_id).socket)
        document: Mapping[str, Any] = json.loads(api.metadata(soon()))
        return document

    def outcome(self, agent_id: str) -> Mapping[str, Any]:
        """What was noted about an agent, once it is gone."""

        def noted() -> Mapping[str, Any]:
            found: Mapping[str, Any] = self.site.gateway.get(f"/v1/agents/{agent_id}")
            return found["outcome"] or {}

        eventually(lambda: noted().get("goneAt"), LONG, why=lambda: str(noted()))
        return noted()

    def expect_nothing_left(self) -> None:
        """Wait until nothing of any guest is there: no row, process, interface, rule or file."""
        eventually(lambda: not self.left(), LONG + STOCK_SECONDS, why=lambda: str(self.left()))

    def left(self) -> list[str]:
        """Everything of guests that is still there."""
        with self.site.engine.connect() as connection:
            found = [
                f"{table}: {row}"
                for table in ("spawns", "guest_addresses")
                for row in connection.execute(text(f"SELECT agent_id FROM {table}")).scalars()
            ]
        with opened() as links:
            taps = [each.name for each in links.all() if TAP_PATTERN.match(each.name)]
        found += [f"interface {each}" for each in taps]
        owners = Isolation(MACHINE_LOCK).addresses(soon())
        found += [f"rules of {each}" for each in owners if each.installation_id != NEIGHBOUR]
        found += [f"folder {each}" for each in self.base.glob("*/*")]
        found += [f"process {each.pid}" for each in psutil.process_iter() if self._is_ours(each)]
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return str(self.base) in " ".join(process.cmdline())
        except psutil.Error:
            return False


@contextmanager
def open_whole(folder: Path) -> Iterator[Whole]:
    """Everything, in a network of its own; leases end soon, so that kills cost little."""
    base = folder / "jails"
    file = folder / "scalers.yaml"
    file.write_text(json.dumps(_configuration(folder, base)))
    windows = {"lease_seconds": 10.0, "backoff_base_seconds": 1.0}
    with network_with_exit(), ExitStack() as stack:
        site = stack.enter_context(open_site(windows, file, roles=ROLES, host="0.0.0.0"))
        _surround(stack)
        yield Whole(site, base)


def _configuration(folder: Path, base: Path) -> dict[str, Any]:
    programs = make_programs(folder / "programs")
    broken = folder / "broken.ext4"
    broken.write_bytes(bytes(1 << 20))
    broken.chmod(0o644)

    def scaler(name: str, label: str, rootfs: str) -> dict[str, Any]:
        return {
            "name": name,
            "type": "firecracker",
            "maxAgents": 1,
            "firecrackerPath": str(programs / "firecracker"),
            "jailerPath": str(programs / "jailer"),
            "kernelPath": f"{FOLDER}/vmlinuz",
            "uid": 65534,
            "gid": 65534,
            "chrootBaseDir": str(base),
            "vcpuCount": 1,
            "memSizeMib": MEMORY_MIB,
            "labelSets": [
                {
                    "labels": ["linux", label],
                    "rootfsPath": rootfs,
                    "overlayDriveSizeMib": 64,
                    "env": {"TOLD_BY": "the label set"},
                }
            ],
        }

    good = scaler("guests", "vm", f"{FOLDER}/rootfs.ext4")
    bad = scaler("broken", "broken", str(broken))
    network = {"cidr": CIDR, "gateway": OWN_ADDRESS, "bridgeName": BRIDGE}
    return {"version": 1, "firecracker": network, "scalers": [good, bad]}


def _surround(stack: ExitStack) -> None:
    """A sibling on the guests' bridge, and the world; something listens everywhere."""
    with opened() as links:
        eventually(lambda: links.find(BRIDGE), LONG, why="there is no bridge")
        sibling, beyond = make_place(stack), make_place(stack)
        join_as_guest(links, sibling, "kici-sibling", BRIDGE, SIBLING)
        _let_sibling()
        join(links, beyond, "world0", "out0", ("192.0.2.1/24",))
    for address in (PUBLIC, *PRIVATE, METADATA):
        beyond.run("ip", "addr", "add", f"{address}/32", "dev", "eth0")
    for place in (sibling, beyond, None):
        listen(stack, place, 80, PORT)


def _let_sibling() -> None:
    """Without rules of its own it would reach nobody, and that would prove nothing."""
    url = f"ws://{OWN_ADDRESS}:{PORT}"
    access = agent_access(
        Owner(NEIGHBOUR, "scaler-firecracker-sibling"),
        address=SIBLING,
        gateway=OWN_ADDRESS,
        policy=None,
        gateway_url=url,
        gateway_addresses=(OWN_ADDRESS,),
    )
    Isolation(MACHINE_LOCK).let(BRIDGE, CIDR, access, soon())
