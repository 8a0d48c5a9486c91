"""What agents reach, by real packets: beyond the machine, on the machine, and each other."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.container.harness import IMAGE
from tests.e2e.container.networks import (
    METADATA,
    PRIVATE,
    PUBLIC,
    UPLINK,
    drops,
    host_ports,
    wait_for_address,
    world,
)
from tests.e2e.container.workshop import GATEWAY_PORT, Workshop, soon
from tests.support.waiting import eventually
from workers.container import spawn
from workers.container.networks import NAME, local_addresses
from workers.container.seen import Seen
from workers.container.tools import own_container
from workers.contract import SpawnOrder
from workers.errors import NotDone
from workers.network.access import Owner
from workers.network.isolation import Isolation

CLOSED_PORT = 5432
NAME_SERVICE = 53

_PROBE = """
cat > /tmp/probe.py <<'END'
import json, os, signal, socket, sys, threading, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
results = {}
def probe(target):
    host, _, port = target.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.5) as connection:
            results[target] = connection.recv(5) == b"hello"
    except OSError:
        results[target] = False
number = 0
while True:
    asked = "/harness/%s-ask-%d" % (os.environ["KICI_AGENT_ID"], number)
    if not os.path.exists(asked):
        time.sleep(0.02)
        continue
    threads = [threading.Thread(target=probe, args=(t,)) for t in json.load(open(asked))]
    for each in threads: each.start()
    for each in threads: each.join()
    answer = asked.replace("ask", "answer")
    open(answer + ".new", "w").write(json.dumps(results))
    os.rename(answer + ".new", answer)
    results, number = {}, number + 1
END
exec python3 /tmp/probe.py
"""

_LISTEN = """
import socket
listener = socket.create_server(("0.0.0.0", 80))
while True:
    connection, _ = listener.accept()
    connection.sendall(b"hello")
    connection.close()
"""

_SPOOF = """
python3 -c '
import socket, struct
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def packet(source, target):
    head = struct.pack("!BBHHHBBH4s4s", 69, 0, 28, 7, 0, 64, 17, 0,
                       socket.inet_aton(source), socket.inet_aton(target))
    return head + struct.pack("!HHHH", 9, 80, 8, 0)
for _ in range(5):
    raw.sendto(packet("172.30.200.200", "203.0.113.10"), ("203.0.113.10", 0))
open("/harness/spoofed", "w").close()
'
sleep 600
"""


@pytest.fixture(autouse=True, scope="module")
def _around() -> Iterator[None]:
    with world(), host_ports(GATEWAY_PORT, CLOSED_PORT, NAME_SERVICE):
        yield


class Probes:
    """Asks an agent what it reaches."""

    def __init__(self, workshop: Workshop, agent_id: str) -> None:
        self._workshop = workshop
        self._agent = agent_id
        self._asked = 0

    def reached(self, *targets: str) -> set[str]:
        """Those of the targets that answered."""
        number, self._asked = self._asked, self._asked + 1
        fresh = self._workshop.shared / "question"
        fresh.write_text(json.dumps(targets))
        fresh.rename(self._workshop.shared / f"{self._agent}-ask-{number}")
        answers = json.loads(self._workshop.said(f"{self._agent}-answer-{number}"))
        return {target for target, is_open in answers.items() if is_open}


def _spawn(workshop: Workshop, **more: object) -> tuple[SpawnOrder, Probes]:
    order = workshop.order(_PROBE, **more)  # type: ignore[arg-type]  # passed on
    workshop.open().spawn(order, soon())
    return order, Probes(workshop, order.agent_id)


def _owner(order: SpawnOrder) -> Owner:
    return Owner(order.installation_id, order.agent_id)


def _gateway(workshop: Workshop) -> str:
    """The address of this machine on the agents' bridge."""
    workshop.open().prepare([workshop.scaler()], soon())
    api = workshop.engine.client()
    [network] = [each for each in api.networks(names=[NAME]) if each["Name"] == NAME]
    api.close()
    return str(network["IPAM"]["Config"][0]["Gateway"])


def _on_port(port: int, hosts: Sequence[str]) -> list[str]:
    return [f"{host}:{port}" for host in hosts]


def test_by_default_the_internet_is_open_and_everything_else_closed(workshop: Workshop) -> None:
    gateway = _gateway(workshop)
    _, probes = _spawn(workshop)

    reached = probes.reached(
        *_on_port(80, [PUBLIC, METADATA, *PRIVATE]),
        *_on_port(GATEWAY_PORT, [gateway, UPLINK]),
        *_on_port(NAME_SERVICE, [gateway, UPLINK]),
        *_on_port(CLOSED_PORT, [gateway, UPLINK]),
    )

    assert reached == {
        f"{PUBLIC}:80",
        f"{gateway}:{GATEWAY_PORT}",
        f"{UPLINK}:{GATEWAY_PORT}",
        f"{gateway}:{NAME_SERVICE}",
    }


def test_a_policy_opens_and_closes_as_it_says(workshop: Workshop) -> None:
    targets = _on_port(80, [PUBLIC, METADATA, *PRIVATE])
    gateway = f"{_gateway(workshop)}:{GATEWAY_PORT}"
    policies: list[tuple[dict[str, object], set[str]]] = [
        ({"allowlist": ("10.1.0.0/16",)}, {f"{PUBLIC}:80", "10.1.2.3:80", gateway}),
        ({"denyAll": True}, {gateway}),
        ({"denyAll": True, "allowlist": (PUBLIC,)}, {f"{PUBLIC}:80", gateway}),
        ({"hostAccess": ()}, {f"{PUBLIC}:80"}),
    ]
    for policy, expected in policies:
        _, probes = _spawn(workshop, networkPolicy=policy)
        assert probes.reached(*targets, gateway) == expected, policy


def test_host_access_replaces_the_default(workshop: Workshop) -> None:
    gateway = _gateway(workshop)
    _, probes = _spawn(workshop, networkPolicy={"hostAccess": (f"{gateway}:{CLOSED_PORT}",)})

    reached = probes.reached(
        *_on_port(CLOSED_PORT, [gateway, UPLINK]),
        *_on_port(GATEWAY_PORT, [gateway]),
        *_on_port(NAME_SERVICE, [gateway]),
    )

    assert reached == {f"{gateway}:{CLOSED_PORT}"}


def test_a_gateway_elsewhere_is_reached_though_its_network_is_closed(workshop: Workshop) -> None:
    _, probes = _spawn(
        workshop,
        gateway_url="ws://ci.internal:4000/v1/agents",
        options={"extraHosts": ("ci.internal:10.1.2.3",)},
        networkPolicy={"denyAll": True},
    )

    reached = probes.reached("ci.internal:4000", *_on_port(4000, PRIVATE), "10.1.2.3:80")

    assert reached == {"ci.internal:4000", "10.1.2.3:4000"}


def test_agents_do_not_reach_each_other(workshop: Workshop) -> None:
    server, _ = _spawn(workshop)
    _, probes = _spawn(workshop)
    address = Isolation().addresses(soon())[_owner(server)]
    name = f"kici-{server.installation_id}-{server.agent_id}"
    api = workshop.engine.client()
    listening = api.exec_create(name, ["python3", "-c", _LISTEN])
    api.exec_start(listening["Id"], detach=True)
    api.close()

    eventually(lambda: b"hello" in _heard(address), why="nobody listens, so nothing is shown")
    assert probes.reached(f"{address}:80", f"{PUBLIC}:80") == {f"{PUBLIC}:80"}


def _heard(address: str) -> bytes:
    """What this machine itself hears from an agent."""
    try:
        with socket.create_connection((address, 80), timeout=2) as connection:
            return connection.recv(5)
    except OSError:
        return b""


def test_ipv6_is_closed_as_well(workshop: Workshop) -> None:
    gateway = _gateway(workshop)
    order, probes = _spawn(workshop)
    bridge = next(name for name, held in local_addresses().items() if gateway in held)
    address = wait_for_address(bridge)
    api = workshop.engine.client()
    name = f"kici-{order.installation_id}-{order.agent_id}"
    asked = api.exec_create(name, ["cat", "/proc/sys/net/ipv6/conf/eth0/disable_ipv6"])
    answer = api.exec_start(asked["Id"])
    api.close()

    assert address.startswith("fe80::")
    assert not probes.reached(f"{address}%eth0:{GATEWAY_PORT}")
    assert answer.strip() == b"1"


def test_a_made_up_address_reaches_nothing(workshop: Workshop) -> None:
    _gateway(workshop)
    before = drops("whoever has no rules")
    workshop.open().spawn(workshop.order(_SPOOF), soon())
    workshop.said("spoofed")

    eventually(lambda: drops("whoever has no rules") >= before + 5)


def test_whoever_has_no_rules_reaches_nothing(workshop: Workshop) -> None:
    gateway = _gateway(workshop)
    workshop.label_set(_PROBE)
    api = workshop.engine.client()
    config = {
        "Image": IMAGE,
        "Env": ["KICI_AGENT_ID=stray"],
        "Labels": {"kici-installation": workshop.installation_id},
        "HostConfig": {"NetworkMode": NAME, "Binds": [f"{workshop.shared}:/harness"]},
    }
    make: Callable[..., dict[str, str]] = api.create_container_from_config
    api.start(make(config, "stray")["Id"])
    api.close()

    probes = Probes(workshop, "stray")

    assert not probes.reached(f"{PUBLIC}:80", f"{gateway}:{GATEWAY_PORT}")


def test_rules_go_with_the_agent_and_do_not_come_back_with_its_address(workshop: Workshop) -> None:
    backend = workshop.open()
    first, probes = _spawn(workshop, networkPolicy={"allowlist": ("10.1.0.0/16",)})
    had = Isolation().addresses(soon())[_owner(first)]
    assert probes.reached("10.1.2.3:80")

    backend.destroy(workshop.ref(first), soon())

    assert _owner(first) not in Isolation().addresses(soon())
    for _ in range(3):
        order, probes = _spawn(workshop)
        again = Isolation().addresses(soon())[_owner(order)]
        assert not probes.reached("10.1.2.3:80")
        if again == had:
            break
        backend.destroy(workshop.ref(order), soon())


def test_rules_that_somebody_flushed_are_in_force_again_after_the_next_inventory(
    workshop: Workshop,
) -> None:
    _, probes = _spawn(workshop)
    subprocess.run(["nft", "delete", "table", "ip", "kici"], check=True)
    assert probes.reached("10.1.2.3:80"), "the flush had no effect, so this test shows nothing"

    workshop.open().inventory(workshop.installation_id, soon())

    assert probes.reached("10.1.2.3:80", f"{PUBLIC}:80") == {f"{PUBLIC}:80"}


def test_stale_rules_are_found_by_the_inventory(workshop: Workshop) -> None:
    order, _ = _spawn(workshop)
    api = workshop.engine.client()
    api.remove_container(f"kici-{workshop.installation_id}-{order.agent_id}", force=True)
    api.close()
    assert _owner(order) in Isolation().addresses(soon())

    assert workshop.open().inventory(workshop.installation_id, soon()) == ()

    assert _owner(order) not in Isolation().addresses(soon())


def test_without_rules_there_is_no_agent(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotDone("no rules today")

    monkeypatch.setattr(Isolation, "let", refuse)

    with pytest.raises(NotDone, match="no rules today"):
        workshop.open().spawn(workshop.order(), soon())

    assert workshop.open().inventory(workshop.installation_id, soon()) == ()


def test_a_container_whose_address_is_not_known_is_no_agent(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_address(*arguments: Any) -> Seen | None:
        seen = own_container(*arguments)
        return None if seen is None else replace(seen, addresses={})

    monkeypatch.setattr(spawn, "own_container", without_address)

    with pytest.raises(NotDone, match="has no address"):
        workshop.open().spawn(workshop.order(), soon())

    assert workshop.open().inventory(workshop.installation_id, soon()) == ()


def test_without_isolation_there_are_no_rules(workshop: Workshop) -> None:
    order, probes = _spawn(workshop, options={"networkIsolation": False})

    assert probes.reached(f"{PRIVATE[0]}:80") == {f"{PRIVATE[0]}:80"}
    assert _owner(order) not in Isolation().addresses(soon())
