"""A runtime that is stopped, killed or hangs in the middle of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.container.engines import DockerEngine, PodmanEngine, TestEngine
from tests.e2e.container.gateway import Authority, gateway
from tests.e2e.container.harness import make_harness_image
from tests.e2e.container.images import AGENT, make_images
from tests.e2e.container.workshop import Workshop, soon
from tests.support.waiting import eventually
from workers.contract import Deadline, ExitKind
from workers.errors import BackendError, NotDone, OutcomeUnknown


@pytest.fixture(scope="module", params=["docker", "docker-that-keeps-running", "podman"])
def own_engine(request: pytest.FixtureRequest, authority: Authority) -> Iterator[TestEngine]:
    """A runtime that may be broken; its containers survive it, or they do not."""
    from tests.e2e.container.conftest import TREE

    made: TestEngine = (
        PodmanEngine()
        if request.param == "podman"
        else DockerEngine(keeps_running="keeps" in request.param)
    )
    try:
        made.start()
        api = made.client(120)
        make_images(api, Path(TREE), authority.certificate)
        make_harness_image(api)
        api.close()
        yield made
    finally:
        made.close()


@pytest.fixture
def site(own_engine: TestEngine, tmp_path: Path) -> Iterator[Workshop]:
    """An installation on it."""
    made = Workshop(own_engine, tmp_path)
    yield made
    made.close()


def _survives(site: Workshop) -> bool:
    """Whether containers run on while their runtime is away."""
    return "--live-restore" in site.engine.command() or isinstance(site.engine, PodmanEngine)


def test_a_runtime_restarted_in_the_middle_of_a_job_costs_at_most_that_job(site: Workshop) -> None:
    backend = site.open()
    with gateway() as server:
        order = site.order(gateway_url=server.url, image=AGENT)
        backend.spawn(order, soon())
        line = server.accept()
        line.welcome()
        line.start("sh", "-c", "echo begun; read word < /tmp/door || sleep 8; echo done")
        eventually(lambda: backend.logs(site.ref(order), 5, soon()))

        site.engine.stop()
        with pytest.raises(NotDone):
            backend.inventory(site.installation_id, soon())
        with pytest.raises(NotDone):
            backend.exit_cause(site.ref(order), soon())
        with pytest.raises(OutcomeUnknown):
            backend.destroy(site.ref(order, token=1), soon())
        site.engine.start()

        if _survives(site):
            assert line.finish().exit_code == 0
        cause = eventually(lambda: backend.exit_cause(site.ref(order), soon()), 40)

    assert cause is not None
    if _survives(site):
        assert (cause.kind, cause.exit_code) == (ExitKind.EXITED, 0)
    [found] = backend.inventory(site.installation_id, soon())
    assert not found.running
    backend.destroy(site.ref(order), soon())
    assert backend.inventory(site.installation_id, soon()) == ()


def test_a_runtime_that_was_killed_is_found_as_it_is_afterwards(site: Workshop) -> None:
    backend, order = site.open(), site.order()
    backend.spawn(order, soon())

    site.engine.kill()
    site.engine.start()

    [found] = backend.inventory(site.installation_id, soon())
    cause = backend.exit_cause(site.ref(order), soon())
    assert (cause is None) is found.running
    assert found.running or not _survives(site)
    backend.destroy(site.ref(order), soon())
    assert backend.inventory(site.installation_id, soon()) == ()


def test_a_runtime_that_hangs_ends_no_call_late_and_condemns_nobody(site: Workshop) -> None:
    backend, order, wanted = site.open(), site.order(), site.order()
    backend.spawn(order, soon())

    site.engine.freeze()
    try:
        with pytest.raises(NotDone):
            backend.inventory(site.installation_id, Deadline.after(2))
        with pytest.raises(NotDone):
            backend.exit_cause(site.ref(order), Deadline.after(2))
        with pytest.raises(BackendError):
            backend.spawn(wanted, Deadline.after(2))
    finally:
        site.engine.thaw()

    running = {
        each.agent_id: each.running for each in backend.inventory(site.installation_id, soon())
    }
    assert running[order.agent_id]
    backend.spawn(wanted, soon())
    for each in (order, wanted):
        backend.destroy(site.ref(each), soon())
    assert backend.inventory(site.installation_id, soon()) == ()
