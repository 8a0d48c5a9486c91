"""The host's network for these tests: a namespace of each test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.net_namespace import own_network
from workers.firecracker.links import opened


@pytest.fixture
def own_net() -> Iterator[None]:
    """An empty network with a way out, `out0`."""
    with own_network():
        with opened() as links:
            route = links._route
            route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")
            route.link("add", ifname="out0", kind="bridge")
            index = route.link_lookup(ifname="out0")[0]
            route.addr("add", index=index, address="192.0.2.2", prefixlen=24)
            route.link("set", index=index, state="up")
            route.route("add", dst="default", gateway="192.0.2.1")
        yield
