"""A runtime that is reached over TCP with certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kici_scaler.embedded.ports import free_port
from tests.e2e.container.conftest import TREE
from tests.e2e.container.engines import DockerEngine, TestEngine
from tests.e2e.container.gateway import Authority, make_authority
from tests.e2e.container.harness import make_harness_image
from tests.e2e.container.images import make_images
from tests.e2e.container.workshop import Workshop, soon
from workers.contract import ExitKind, Severity
from workers.errors import NotDone


class GuardedDocker(DockerEngine):
    """A Docker that also listens on TCP, for whoever has a certificate of that authority."""

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self._authority = authority
        self.address = f"127.0.0.1:{free_port()}"

    def command(self) -> list[str]:
        return [
            *super().command(),
            f"--host=tcp://{self.address}",
            "--tlsverify",
            f"--tlscacert={self._authority.own_file}",
            f"--tlscert={self._authority.chain_file}",
            f"--tlskey={self._authority.chain_file}",
        ]


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[GuardedDocker]:
    """A Docker behind TLS, with the images."""
    made = GuardedDocker(authority)
    try:
        made.start()
        api = made.client(120)
        make_images(api, Path(TREE))
        make_harness_image(api)
        api.close()
        yield made
    finally:
        made.close()


@pytest.fixture
def site(guarded: TestEngine, tmp_path: Path) -> Iterator[Workshop]:
    """An installation on it."""
    made = Workshop(guarded, tmp_path)
    yield made
    made.close()


def _options(guarded: GuardedDocker, authority: Authority) -> Mapping[str, object]:
    return {
        "host": f"tcp://{guarded.address}",
        "socketPath": None,
        "tls": {
            "caFile": str(authority.own_file),
            "certFile": str(authority.chain_file),
            "keyFile": str(authority.chain_file),
        },
    }


def test_a_runtime_behind_tls_is_used_like_any_other(
    site: Workshop, guarded: GuardedDocker, authority: Authority
) -> None:
    options = _options(guarded, authority)
    backend, order = site.open(), site.order(options=options)

    spawned = backend.spawn(order, soon())

    assert spawned.ref["engine"] == f"tcp://{guarded.address}"
    [found] = site.open().inventory(site.installation_id, soon())
    assert found.agent_id == order.agent_id
    ref = replace(site.ref(order), ref=spawned.ref)
    backend.destroy(ref, soon())
    cause = backend.exit_cause(ref, soon())
    assert cause is not None
    assert cause.kind is ExitKind.ABSENT
    findings = backend.check([site.scaler(**options)], soon())
    assert not [each for each in findings if each.severity is Severity.ERROR]


def test_a_stranger_is_refused_and_nothing_is_concluded(
    site: Workshop, guarded: GuardedDocker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = make_authority(tmp_path_factory.mktemp("stranger"))
    order = site.order(options=_options(guarded, stranger))

    with pytest.raises(NotDone, match="could not reach"):
        site.open().spawn(order, soon())
    with pytest.raises(NotDone):
        site.open().inventory(site.installation_id, soon())
