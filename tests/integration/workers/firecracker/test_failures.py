"""What goes wrong on the way up or down: the right word for it, and nothing left."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kici_scaler.domain.guest_addresses import GuestAddress
from tests.conformance.harness import soon
from tests.support.firecracker import REAL, FirecrackerHarness
from tests.support.waiting import eventually
from workers.contract import ComputeRef, ExitKind, LifecycleEvent, Severity
from workers.errors import NotDone, OutcomeUnknown, Permanent
from workers.firecracker import chroot, jail, starter
from workers.firecracker.api import FirecrackerApi
from workers.firecracker.backend import FirecrackerBackend
from workers.firecracker.links import make_tap, opened
from workers.firecracker.names import TAP_PATTERN
from workers.network.access import AgentAccess, Owner, agent_access

recorded = pytest.mark.skipif(bool(REAL), reason="real guests do not fail on demand")


def left(harness: FirecrackerHarness, agent_id: str) -> list[str]:
    """Everything of the agent that is still on the machine."""

    def everything() -> Iterator[str]:
        if harness.living(agent_id):
            yield "a microVM"
        if harness.layout(agent_id).home.exists():
            yield "its folder"
        yield from map(str, jail.cgroup_folders(agent_id))
        book = harness.context.addresses
        if book is not None and agent_id in book.held():
            yield "its address"
        with opened() as links:
            yield from (each.name for each in links.all() if TAP_PATTERN.match(each.name))
        owner = Owner(harness.installation_id, agent_id)
        if owner in harness.open()._tools.isolation.addresses(soon()):
            yield "its rules"

    return list(everything())


@pytest.mark.parametrize("step", range(11))
def test_a_spawn_that_is_called_off_between_any_two_steps_leaves_nothing(
    harness: FirecrackerHarness, backend: FirecrackerBackend, agent_id: str, step: int
) -> None:
    asked: list[None] = []

    def wanted() -> bool:
        asked.append(None)
        return len(asked) <= step

    with pytest.raises((NotDone, Permanent)):
        backend.spawn(harness.order(agent_id, still_wanted=wanted), soon())

    assert len(asked) == step + 1
    assert left(harness, agent_id) == []


@recorded
def test_a_kernel_that_panics_is_told_so(
    harness: FirecrackerHarness, backend: FirecrackerBackend, agent_id: str
) -> None:
    (harness.base / "PANIC").touch()
    told: list[LifecycleEvent] = []

    with pytest.raises(Permanent, match="kernel-panic") as failure:
        backend.spawn(harness.order(agent_id, report=told.append), soon())

    assert "Kernel panic" in failure.value.log_tail[-1]
    assert "captured output" in told[-1].detail
    assert left(harness, agent_id) == []
    with pytest.raises(Permanent, match="has run"):
        backend.spawn(harness.order(agent_id, token=2), soon())
    assert harness.starts(agent_id) == 1


@recorded
def test_an_api_that_never_answers_fails_the_spawn(
    harness: FirecrackerHarness,
    backend: FirecrackerBackend,
    agent_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starter, "SOCKET_SECONDS", 1.0)
    (harness.base / "MUTE").touch()

    with pytest.raises(Permanent, match="did not answer"):
        backend.spawn(harness.order(agent_id), soon())

    assert left(harness, agent_id) == []


def _without_kernel(harness: FirecrackerHarness, _patch: pytest.MonkeyPatch) -> None:
    for each in (harness.folder / "images").glob("kernel*"):
        each.unlink()


def _without_room(_harness: FirecrackerHarness, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chroot, "KEPT_FREE_BYTES", 1 << 60)


def _without_addresses(harness: FirecrackerHarness, _patch: pytest.MonkeyPatch) -> None:
    book = harness.context.addresses
    assert book is not None
    taken = {
        f"other-{last}": GuestAddress(f"10.0.0.{last}", "06", f"tap{last}")
        for last in range(2, 255)
    }
    text = {key: {"address": v.address, "mac": v.mac, "tap": v.tap} for key, v in taken.items()}
    (harness.folder / "book.json").write_text(json.dumps(text))


def _without_bridge(_harness: FirecrackerHarness, _patch: pytest.MonkeyPatch) -> None:
    with opened() as links:
        links.remove("kici-br0")


@pytest.mark.parametrize(
    ("spoil", "kind", "message"),
    [
        (_without_kernel, Permanent, "is not there"),
        (_without_room, NotDone, "MiB are free"),
        (_without_addresses, NotDone, "IP pool exhausted"),
        (_without_bridge, NotDone, "no bridge kici-br0"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_left(
    harness: FirecrackerHarness,
    backend: FirecrackerBackend,
    agent_id: str,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[FirecrackerHarness, pytest.MonkeyPatch], None],
    kind: type[Exception],
    message: str,
) -> None:
    order = harness.order(agent_id)
    (harness.folder / "book.json").write_text("{}")
    spoil(harness, monkeypatch)

    with pytest.raises(kind, match=message):
        backend.spawn(order, soon())

    assert left(harness, agent_id) == []
    assert harness.starts(agent_id) == 0


@pytest.fixture
def small_disk(harness: FirecrackerHarness) -> Iterator[None]:
    """A disk below the jails that has room for some of a microVM's files, but not for its root."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k,mode=711", "tmpfs", str(harness.base)],
        check=True,
    )
    yield
    subprocess.run(["umount", "--lazy", str(harness.base)], check=True)


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_fills_up_fails_the_spawn_and_is_empty_again(
    harness: FirecrackerHarness,
    backend: FirecrackerBackend,
    agent_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(NotDone, match="MiB are free"):
        backend.spawn(harness.order(agent_id), soon())
    monkeypatch.setattr(chroot, "KEPT_FREE_BYTES", 0)

    with pytest.raises(NotDone, match="No space left on device"):
        backend.spawn(harness.order(agent_id, token=2), soon())

    assert left(harness, agent_id) == []
    assert harness.starts(agent_id) == 0


def test_where_room_is_short_what_ended_goes_and_no_guest_that_runs(
    harness: FirecrackerHarness, backend: FirecrackerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, running = harness.new_agent_id(), harness.new_agent_id()
    for each in (ended, running):
        backend.spawn(harness.order(each), soon())
    harness.end(ended)

    def free_bytes(_base: Path) -> int:
        return 0 if harness.layout(ended).home.exists() else chroot.KEPT_FREE_BYTES

    monkeypatch.setattr(chroot, "free_bytes", free_bytes)
    backend.prepare([harness.scaler()], soon())

    assert not harness.layout(ended).home.exists()
    assert harness.living(running)
    monkeypatch.setattr(chroot, "free_bytes", lambda _base: 0)
    with pytest.raises(NotDone, match="MiB are free"):
        backend.prepare([harness.scaler()], soon())
    assert harness.living(running)
    backend.destroy(harness.ref(running, 2), soon())


def test_a_bridge_that_somebody_took_away_is_made_again_by_the_next_stocktaking(
    harness: FirecrackerHarness, backend: FirecrackerBackend
) -> None:
    backend.prepare([harness.scaler()], soon())
    with opened() as links:
        links.remove("kici-br0")

    backend.inventory(harness.installation_id, soon())

    findings = {each.subject: each.severity for each in backend.check([harness.scaler()], soon())}
    assert findings["firecracker:kici-br0"] is Severity.OK


def test_a_microvm_that_was_killed_is_told_by_its_signal(
    harness: FirecrackerHarness, backend: FirecrackerBackend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())
    harness.close()
    eventually(harness.layout(agent_id).exit.exists)

    news = [backend.attend(soon()) for _ in range(2)]
    cause = backend.exit_cause(harness.ref(agent_id, 1), soon())

    assert news == [[agent_id], []]
    assert cause is not None
    assert (cause.kind, cause.signal) == (ExitKind.SIGNALLED, 9)
    backend.destroy(harness.ref(agent_id, 2), soon())
    assert left(harness, agent_id) == []


def test_a_guests_token_is_cleared_once_its_agent_has_connected(
    harness: FirecrackerHarness, backend: FirecrackerBackend, agent_id: str
) -> None:
    order = harness.order(agent_id)
    backend.spawn(order, soon())
    api = FirecrackerApi(harness.layout(agent_id).socket)
    before = api.metadata(soon())

    for _ in range(2):
        backend.attend(soon())

    assert order.agent_token in before
    assert order.agent_token not in api.metadata(soon())
    harness.open().spawn(harness.order(agent_id, token=2), soon())
    assert order.agent_token not in api.metadata(soon())


def test_a_sweep_takes_away_what_nobody_owns_and_nothing_else(
    harness: FirecrackerHarness, backend: FirecrackerBackend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())
    gone = Owner(harness.installation_id, harness.new_agent_id())
    theirs = Owner("another", harness.new_agent_id())
    isolation = backend._tools.isolation
    with opened() as links:
        make_tap(links, "kici-00000001", gone, "kici-br0", (0, 0))
        make_tap(links, "kici-00000002", theirs, "kici-br0", (0, 0))
        links.add_tap("kici-00000003", 0, 0)
    for number, owner in ((8, gone), (9, theirs)):
        access = _access(owner, f"10.0.0.{number}")
        isolation.let("kici-br0", "10.0.0.0/24", access, soon())

    [found] = backend.inventory(harness.installation_id, soon())

    assert found.agent_id == agent_id
    with opened() as links:
        taps = {each.name for each in links.all() if TAP_PATTERN.match(each.name)}
    assert taps == {found.ref["tap"], "kici-00000002"}
    own = Owner(harness.installation_id, agent_id)
    assert set(isolation.addresses(soon())) == {own, theirs}
    backend.destroy(harness.ref(agent_id, 2), soon())


def _access(owner: Owner, address: str) -> AgentAccess:
    return agent_access(
        owner,
        address=address,
        gateway="10.0.0.1",
        policy=None,
        gateway_url="ws://10.0.0.1:4000",
        gateway_addresses=("10.0.0.1",),
    )


def test_rules_that_were_flushed_are_put_back(
    harness: FirecrackerHarness, backend: FirecrackerBackend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())
    own = Owner(harness.installation_id, agent_id)
    isolation = backend._tools.isolation
    isolation.forget([own], soon())

    backend.inventory(harness.installation_id, soon())

    assert own in isolation.addresses(soon())
    backend.destroy(harness.ref(agent_id, 2), soon())


def test_shared_originals_keep_their_owner_and_are_linked(
    harness: FirecrackerHarness, backend: FirecrackerBackend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())
    original = harness.folder / "images/rootfs.ext4"
    placed = harness.layout(agent_id).root / "rootfs.ext4"

    assert placed.samefile(original)
    assert original.stat().st_uid == 0
    assert (harness.layout(agent_id).root / "overlay.ext4").stat().st_uid == 65534
    backend.destroy(harness.ref(agent_id, 2), soon())


def test_what_the_guests_user_could_write_is_copied(
    harness: FirecrackerHarness, backend: FirecrackerBackend, agent_id: str
) -> None:
    original = harness.folder / "images/rootfs.ext4"
    original.chmod(0o666)

    backend.spawn(harness.order(agent_id), soon())

    placed = harness.layout(agent_id).root / "rootfs.ext4"
    assert not placed.samefile(original)
    assert placed.stat().st_mode & 0o777 == 0o400
    backend.destroy(harness.ref(agent_id, 2), soon())


def test_a_destroy_whose_book_cannot_be_asked_is_not_confirmed(
    harness: FirecrackerHarness, backend: FirecrackerBackend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())

    class Away:
        """A book whose database is away."""

        def release(self, _agent_id: str) -> bool:
            raise NotDone("the database cannot be reached")

    lost = FirecrackerBackend(replace(harness.context, addresses=Away()))  # type: ignore[arg-type]  # the one call that is made
    agent = ComputeRef(harness.installation_id, "pool", agent_id, 2)
    with pytest.raises((NotDone, OutcomeUnknown)):
        lost.destroy(agent, soon())

    assert [each.agent_id for each in backend.inventory(harness.installation_id, soon())] == [
        agent_id
    ]
    backend.destroy(harness.ref(agent_id, 3), soon())
    assert left(harness, agent_id) == []
