"""Runtimes for these tests; `make e2e-container` brings what they need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.harness import Harness
from tests.e2e.container.engines import DockerEngine, PodmanEngine, TestEngine
from tests.e2e.container.gateway import Authority, make_authority
from tests.e2e.container.harness import ContainerHarness, make_harness_image
from tests.e2e.container.images import make_images
from tests.e2e.container.workshop import Workshop
from workers.contract import Backend

TREE = os.environ.get("KICI_E2E_TREE", "")

WHY_NOT = (
    "these tests start container runtimes in namespaces of their own: run `make e2e-container` "
    "as root on a Debian machine"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Outside of its namespaces nothing here may run."""
    if TREE:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=WHY_NOT))


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs the gateway's certificate; only the agent's own image trusts it."""
    return make_authority(tmp_path_factory.mktemp("authority"))


def _with_images(engine: TestEngine, authority: Authority) -> Iterator[TestEngine]:
    try:
        engine.start()
        api = engine.client(timeout=120)
        make_images(api, Path(TREE), authority.certificate)
        make_harness_image(api)
        api.close()
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="session")
def docker(authority: Authority) -> Iterator[TestEngine]:
    """A Docker of this test run."""
    yield from _with_images(DockerEngine(), authority)


@pytest.fixture(scope="session")
def podman(authority: Authority) -> Iterator[TestEngine]:
    """A Podman of this test run."""
    yield from _with_images(PodmanEngine(), authority)


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> TestEngine:
    """Each runtime in turn."""
    found: TestEngine = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def harness(engine: TestEngine, tmp_path: Path) -> Iterator[Harness]:
    """The backend on that runtime, as the conformance suite takes it."""
    made = ContainerHarness(tmp_path, engine)
    yield made
    made.close()


@pytest.fixture
def backend(harness: Harness) -> Backend:
    """The backend as one worker has it."""
    return harness.open()


@pytest.fixture
def agent_id(harness: Harness) -> str:
    """An agent that does not exist yet."""
    return harness.new_agent_id()


@pytest.fixture
def workshop(engine: TestEngine, tmp_path: Path) -> Iterator[Workshop]:
    """An installation on each runtime in turn."""
    made = Workshop(engine, tmp_path)
    yield made
    made.close()
