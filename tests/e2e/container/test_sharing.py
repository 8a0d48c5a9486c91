"""Several installations, and strangers, on one runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.container.engines import TestEngine
from tests.e2e.container.harness import IMAGE
from tests.e2e.container.workshop import Workshop, soon
from workers.contract import ComputeRef, ExitKind, Severity
from workers.errors import PartlyListed, Permanent
from workers.network.access import Owner
from workers.network.isolation import Isolation


@pytest.fixture
def other(engine: TestEngine, tmp_path: Path) -> Iterator[Workshop]:
    """Another installation with a scaler of the same name on the same runtime."""
    made = Workshop(engine, tmp_path / "other")
    yield made
    made.close()


def test_two_installations_do_not_touch_each_other(workshop: Workshop, other: Workshop) -> None:
    mine, theirs = workshop.order(), other.order()
    workshop.open().spawn(mine, soon())
    other.open().spawn(theirs, soon())
    rules_of_theirs = Owner(other.installation_id, theirs.agent_id)

    [found] = workshop.open().inventory(workshop.installation_id, soon())
    reclaimed = workshop.open().reclaim(_same_agent(workshop, theirs.agent_id), soon())
    workshop.open().destroy(_same_agent(workshop, theirs.agent_id), soon())
    workshop.open().prepare([workshop.scaler()], soon())

    assert found.agent_id == mine.agent_id
    assert not reclaimed
    [still] = other.open().inventory(other.installation_id, soon())
    assert (still.agent_id, still.running) == (theirs.agent_id, True)
    assert rules_of_theirs in Isolation().addresses(soon())


def _same_agent(workshop: Workshop, agent_id: str) -> ComputeRef:
    """An agent of the other installation, asked for as if it were ours."""
    options = workshop.engine.options
    return ComputeRef(workshop.installation_id, "pool", agent_id, 9, options=options)


def test_a_strangers_container_is_left_alone_even_when_it_has_the_name(workshop: Workshop) -> None:
    order = workshop.order()
    name = f"kici-{order.installation_id}-{order.agent_id}"
    api = workshop.engine.client()
    api.create_container(IMAGE, name=name)

    with pytest.raises(Permanent, match="taken by a container that is not"):
        workshop.open().spawn(order, soon())
    workshop.open().destroy(workshop.ref(order), soon())
    cause = workshop.open().exit_cause(workshop.ref(order), soon())

    assert api.inspect_container(name)["State"]["Status"] == "created"
    api.remove_container(name)
    api.close()
    assert cause is not None
    assert cause.kind is ExitKind.ABSENT


def test_compute_that_nobody_knows_is_found_and_reclaimed(workshop: Workshop) -> None:
    order = workshop.order()
    workshop.open().spawn(order, soon())
    afresh = Workshop(workshop.engine, workshop.folder / "afresh", workshop.installation_id)
    backend = afresh.open()
    backend.prepare([afresh.scaler()], soon())

    [found] = backend.inventory(workshop.installation_id, soon())
    ref = ComputeRef(
        found.installation_id, found.scaler, found.agent_id, found.lease_token, found.ref
    )

    assert backend.reclaim(ref, soon())
    assert not backend.reclaim(ref, soon())
    assert backend.inventory(workshop.installation_id, soon()) == ()


def test_a_runtime_that_does_not_answer_hides_no_other(workshop: Workshop) -> None:
    backend, order = workshop.open(), workshop.order()
    backend.spawn(order, soon())
    gone = workshop.scaler(socketPath=str(workshop.folder / "no-docker.sock"))
    with pytest.raises(Exception, match="could not reach"):
        backend.prepare([workshop.scaler(), gone], soon())

    with pytest.raises(PartlyListed) as refusal:
        backend.inventory(workshop.installation_id, soon())

    assert [each.agent_id for each in refusal.value.found] == [order.agent_id]


_PING = """
python3 -c '
import socket
with socket.socket(socket.AF_UNIX) as runtime:
    runtime.connect("{path}")
    runtime.sendall(b"GET /_ping HTTP/1.0\\r\\nHost: runtime\\r\\n\\r\\n")
    said = runtime.recv(4096)
open("/harness/said.new", "wb").write(said)
'
mv /harness/said.new /harness/said
"""


def test_whoever_is_given_the_runtimes_socket_has_the_runtime_and_a_warning_says_so(
    workshop: Workshop,
) -> None:
    script = _PING.format(path=workshop.engine.socket)
    workshop.open().spawn(workshop.order(script, containerSocket=True), soon())

    assert " 200 OK" in workshop.said("said")
    scaler = workshop.scaler(workshop.label_set(containerSocket=True))
    warnings = [
        each.message
        for each in workshop.open().check([scaler], soon())
        if each.severity is Severity.WARNING
    ]
    assert any("root on this machine" in each for each in warnings)
