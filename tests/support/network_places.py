"""Network namespaces that stand for guests and for the world, and what listens in them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import eventually
from workers.firecracker.links import Links

_LISTEN = """
import socket, sys, threading
for port in map(int, sys.argv[1:]):
    server = socket.create_server(("0.0.0.0", port))
    def serve(server=server):
        while True:
            server.accept()[0].close()
    threading.Thread(target=serve).start()
print("up", flush=True)
"""

_REACH = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()
"""


@dataclass
class Place:
    """A network namespace, held by a process that lives in it."""

    holder_pid: int

    def run(self, *command: str) -> subprocess.CompletedProcess[bytes]:
        """Run something in there."""
        inside = f"--net=/proc/{self.holder_pid}/ns/net"
        return subprocess.run(["nsenter", inside, *command], capture_output=True, check=False)

    def reaches(self, address: str, port: int, seconds: float) -> bool:
        """Whether a connection comes about within so many seconds."""
        asked = [sys.executable, "-S", "-c", _REACH, address, str(port), str(seconds)]
        return self.run(*asked).returncode == 0


def make_place(stack: ExitStack) -> Place:
    """An empty namespace that ends with the stack."""
    holder = stack.enter_context(subprocess.Popen(["unshare", "--net", "sleep", "3600"]))
    stack.callback(holder.kill)
    own = Path("/proc/self/ns/net").stat().st_ino
    eventually(lambda: Path(f"/proc/{holder.pid}/ns/net").stat().st_ino != own)
    eventually(lambda: Path(f"/proc/{holder.pid}/comm").read_text().strip() == "sleep")
    return Place(holder.pid)


def join(links: Links, place: Place, name: str, bridge: str, addresses: tuple[str, ...]) -> None:
    """Connect a place with a bridge of this machine, by a port of that name."""
    route = links._route
    route.link("add", ifname=name, kind="veth", peer={"ifname": "eth0"})
    peer, port, on = links.find("eth0"), links.find(name), links.find(bridge)
    assert peer is not None
    assert port is not None
    assert on is not None
    route.link("set", index=peer.index, net_ns_pid=place.holder_pid)
    links.attach(port.index, on.index)
    links.set_up(port.index)
    for address in addresses:
        place.run("ip", "addr", "add", address, "dev", "eth0")
    place.run("ip", "link", "set", "eth0", "up")


def join_as_guest(links: Links, place: Place, name: str, bridge: str, address: str) -> None:
    """Connect a place with the guests' bridge as a guest is."""
    join(links, place, name, bridge, (f"{address}/24",))
    gateway = f"{address.rpartition('.')[0]}.1"
    place.run("ip", "route", "add", "default", "via", gateway)
    port = links.find(name)
    assert port is not None
    links.isolate(port.index)


def listen(stack: ExitStack, place: Place | None, *ports: int) -> None:
    """Have something accept connections in a place, or on this machine, at every address."""
    inside = ["nsenter", f"--net=/proc/{place.holder_pid}/ns/net"] if place else []
    command = [*inside, sys.executable, "-S", "-c", _LISTEN, *map(str, ports)]
    server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
    stack.callback(server.kill)
    assert server.stdout is not None
    assert server.stdout.readline() == b"up\n"
